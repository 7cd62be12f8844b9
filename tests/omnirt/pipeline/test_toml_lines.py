from omnirt.pipeline.toml_lines import key_lines, line_of

TEXT = """\
name = "x"

[[stage]]
name = "a"
options = { temperature = 1 }

[[stage]]
name = "b"

[stage.options]
voice = "heart"   # a comment

[node.speech]
device = "cpu"
"""


def test_keys_are_found_under_their_tables():
    lines = key_lines(TEXT)
    assert lines[("name",)] == 1
    assert lines[("stage", "0", "name")] == 4
    assert lines[("stage", "1")] == 7
    assert lines[("stage", "1", "options", "voice")] == 11
    assert lines[("node", "speech", "device")] == 14


def test_what_has_no_line_of_its_own_gets_that_of_what_holds_it():
    lines = key_lines(TEXT)
    assert line_of(lines, ("stage", "0", "options", "temperature")) == 5
    assert line_of(lines, ("stage", "1", "missing")) == 7
    assert line_of(lines, ("nowhere",)) == 0
