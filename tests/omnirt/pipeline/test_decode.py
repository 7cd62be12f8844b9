import pytest

from omnirt.pipeline.decode import decode, decode_options
from omnirt.pipeline.layers import merged
from omnirt.runtime.stage import NoOptions


def problems(path, sets=()):
    tree = merged(path, (), sets)
    return [str(finding).removeprefix(f"{path}:") for finding in decode(tree)[1]]


def test_a_right_file_decodes_without_findings(write, talk):
    spec, findings = decode(merged(write(talk)))
    assert not findings
    assert [stage.group for stage in spec.stage] == ["llm", "speech"]
    assert spec.edge[0].source == "llm.codes"


def test_all_mistakes_are_found_at_once_with_their_lines(write):
    path = write("""\
nmae = "x"
inputs = "text"
outputs = ["text"]

[[stage]]
name = "a"
bacth = 4
batch = "many"
temperature = 1

[node.a]
device = "gpu"
replicas = 0

[limits]
request_max = 3
""")
    assert problems(path) == [
        "1: error: unknown key 'nmae' (did you mean 'name'?)",
        "2: error: inputs = 'text': Expected array, got str",
        "16: error: limits: unknown key 'request_max' (did you mean 'requests_max'?)",
        "7: error: stage a: unknown key 'bacth' (did you mean 'batch'?); a stage's own keys go under [stage.options]",
        "8: error: stage a: batch = 'many': Expected int, got str",
        "9: error: stage a: unknown key 'temperature' (valid: actor, after, batch, final, load_limit_s, name, node, "
        "options, step_limit_s); a stage's own keys go under [stage.options]",
        "5: error: stage a: the key 'actor' is missing",
        "12: error: node a: device = 'gpu': write 'cpu' or 'cuda:N'",
        "13: error: node a: replicas = 0: Expected int >= 1",
        " error: the key 'name' is missing",
    ]


def test_a_mistake_on_the_command_line_names_the_setting(write, talk):
    assert problems(write(talk), ["stage.tts.batch=0"]) == [
        "--set stage.tts.batch=0: error: stage tts: batch = 0: Expected int >= 1"
    ]


@pytest.mark.parametrize("text", ["stage = 5", "node = [1]", "[node]\nspeech = 3", "limits = 2", "edge = ['a']"])
def test_a_table_written_as_something_else_is_a_finding(write, text):
    path = write('name = "x"\ninputs = []\noutputs = []\n' + text + "\n")
    assert any("[" in problem for problem in problems(path))


def test_options_are_held_against_the_struct_of_the_stage(write, talk):
    tree = merged(write(talk))
    _, findings = decode_options(NoOptions, {"speed": 1}, ("stage", "tts", "options"), tree)
    assert [finding.message for finding in findings] == ["unknown key 'speed'"]
