from pathlib import Path

import pytest

from omnirt.pipeline.deploy import check_pipeline

LOOP = """
name = "loop"
inputs = ["text"]
outputs = ["text"]

[[stage]]
name = "a"
actor = "omnirt_test_stages:Policy"
final = "text"

[[stage]]
name = "b"
actor = "omnirt_test_stages:Policy"

[[edge]]
from = "client.text"
to = "a.text"

[[edge]]
from = "a.text"
to = "b.text"
{there}

[[edge]]
from = "b.text"
to = "a.text"
{back}
"""


def messages(path, sets=()):
    return [
        f"{finding.place}: {finding.message}"
        for finding in check_pipeline(path, (), sets).findings
        if not finding.warning
    ]


def test_a_right_pipeline_has_no_findings(write, talk):
    assert check_pipeline(write(talk)).findings == ()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("stages:Talker", "stages:Taker", "has no 'Taker' (did you mean 'Talker'?)"),
        ("stages:Talker", "stages:NOT_A_STAGE", "is not a Stage class"),
        ("stages:Talker", "stages:OddOptions", "has Options that are not a msgspec.Struct"),
        ("stages:Talker", "stages:OddPorts", "has ports whose payload is no Payload class: text"),
        ("omnirt_test_stages:Talker", "omnirt.actors.stages.eco:Talker", "did you mean 'omnirt.actors.stages.echo'?"),
        ("omnirt_test_stages:Talker", "Talker", "is not of the form 'package.module:Class'"),
        ('to = "tts.codes"', 'to = "tts.code"', "Talker has no input 'code' (did you mean 'codes'?)"),
        ('from = "llm.codes"', 'from = "llm.code"', "Thinker emits no 'code' (did you mean 'codes'?)"),
        ('to = "tts.codes"', 'to = "ttss.codes"', "there is no stage 'ttss' (did you mean 'tts'?)"),
        ('to = "tts.codes"', 'to = "tts"', "write from and to as 'stage.port' or 'client.modality'"),
        ('from = "llm.codes"', 'from = "llm.text"', "llm sends Text, tts takes CodecFrames"),
        ('from = "llm.codes"', 'from = "client.codes"', "'codes' is not among the pipeline's inputs"),
        ('to = "tts.codes"', 'to = "client.codes"', 'stage llm must say final = "codes" to send it to the client'),
        (
            'final = "audio"',
            'final = "audoi"',
            "final = 'audoi' is not among the pipeline's outputs (did you mean 'audio'",
        ),
        ('final = "audio"', 'final = "audoi"', "no stage has final = \"audio\" (did you mean 'audoi'?)"),
        ('final = "audio"', 'final = "text"', "final = 'text' is given by stage 'llm' already"),
        ('inputs = ["text"]', 'inputs = ["text", "video"]', "no stage takes 'video'"),
        ('inputs = ["text"]', 'inputs = ["codes"]', "llm: no input of the pipeline reaches it"),
        ('weights = "some/model"', 'weights = "./nowhere"', "there is no file or folder './nowhere'"),
        (
            'node = "speech"',
            'node = "speech"\nafter = ["lm"]',
            "after = 'lm': there is no such stage (did you mean 'llm'?)",
        ),
        ('node = "speech"', 'node = "head"', "'client' and 'head' are taken"),
        ("chunk_bytes_max = 65536", "window = 2", "it is on no cycle; take its window away"),
        ("chunk_bytes_max = 65536", 'stream = false\noverflow = "drop_oldest"', "'drop_oldest' needs stream = true"),
        ("weights =", "[node.speec]\n[limits]\n[restart]\n#", "no stage runs on it (did you mean 'speech'?)"),
    ],
)
def test_each_mistake_is_named_with_what_was_meant(write, talk, before, after, message):
    assert before in talk
    changed = talk.replace(before, after)
    if after.startswith("[node"):
        changed = talk + "\n[node.speec]\n"
    found = messages(write(changed))
    assert any(message in line for line in found), found


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("stage.llm.options.temprature=1", "unknown key 'temprature' (did you mean 'temperature'?)"),
        ("stage.llm.options.temperature=hot", "temperature = 'hot': Expected float, got str"),
        ("stage.llm.options.weights=/no/where", "stage llm: there is no file or folder '/no/where'"),
        ("limits.requests_max=0", "requests_max = 0: must be more than 0"),
        ("limits.per_key_max=-1", "per_key_max = -1: must be 0 or more"),
        ("edge.llm.codes.credit=0", "credit = 0: Expected int >= 1"),
        ("node.speech.replicas=none", "replicas = 'none': Expected int, got str"),
        ("node.speech.python=/no/python", "there is no interpreter '/no/python'"),
        ("nodes.speech.replicas=2", "unknown key 'nodes' (did you mean 'node'?)"),
    ],
)
def test_settings_are_checked_like_files(write, talk, setting, message):
    found = messages(write(talk), [setting])
    assert any(message in line for line in found), found


def test_all_mistakes_come_at_once(write, talk):
    broken = talk.replace("stages:Talker", "stages:Taker").replace("llm.codes", "lm.codes") + "\n[limit]\n"
    assert len(messages(write(broken))) == 3


def test_a_stage_that_leads_nowhere_is_only_a_warning(write, talk):
    idle = talk + '\n[[stage]]\nname = "idle"\nactor = "omnirt_test_stages:Policy"\n'
    checked = check_pipeline(write(idle))
    assert [finding.warning for finding in checked.findings] == [True]
    assert checked.plan is not None


@pytest.mark.parametrize(
    ("there", "back", "message"),
    [
        ("", "", "cycle a -> b -> a: one of its edges must have window = n, or it can deadlock"),
        ("window = 2", "window = 2", "only one edge may have a window"),
        ("window = 2", "stream = false", "must be stream = true, it would wait for itself"),
        ('window = 2\noverflow = "drop_oldest"', "", "an edge with a window may not drop"),
    ],
)
def test_a_cycle_needs_exactly_one_window(write, there, back, message):
    found = messages(write(LOOP.format(there=there, back=back)))
    assert any(message in line for line in found), found


def test_a_cycle_with_one_window_is_right(write):
    assert messages(write(LOOP.format(there="window = 2", back=""))) == []


def test_one_edge_cannot_answer_two_windows(write):
    text = LOOP.format(there="window = 2", back="") + '\n[[edge]]\nfrom = "a.text"\nto = "b.second"\nwindow = 2\n'
    assert any("it would answer both" in line for line in messages(write(text)))


@pytest.mark.parametrize("text", ["name = ", "\xff"])
def test_of_a_file_that_cannot_be_read_nothing_else_is_said(write, text):
    path = write("")
    Path(path).write_bytes(text.encode("latin-1"))
    assert len(check_pipeline(path, (), ["limits.requests_mx=3"]).findings) == 1


@pytest.mark.parametrize(
    "change",
    [
        "name=",
        "limits.requests_max=99999999999999999999",
        "limits.deadline_s=inf",
        "limits.deadline_s=nan",
        "limits.drain_s=1e300",
        "restart.backoff_s=nan",
        "stage.tts.batch=99999999999999999999",
        "stage.tts.step_limit_s=inf",
        "stage.tts.load_limit_s=nan",
        "edge.llm.codes.credit=1000000000000",
        "node.llm.replicas=1000000",
        "node.llm.ranks=1000000",
    ],
)
def test_numbers_beyond_all_measure_are_slips_of_the_finger(write, talk, change):
    findings = check_pipeline(write(talk), (), [change]).findings
    assert [str(finding.origin) for finding in findings] == [f"--set {change}"]
