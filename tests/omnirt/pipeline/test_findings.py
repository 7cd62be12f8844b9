from omnirt.errors import ConfigError
from omnirt.pipeline.findings import Finding, Origin, PipelineError, errors

WRONG = Finding(Origin("p.toml", 3), "stage tts", "unknown key 'bacth'")
ODD = Finding(Origin("--set a=1"), "", "odd", warning=True)


def test_a_finding_is_one_line_with_file_line_and_place():
    assert str(WRONG) == "p.toml:3: error: stage tts: unknown key 'bacth'"
    assert str(ODD) == "--set a=1: warning: odd"


def test_a_warning_is_no_error():
    assert errors([WRONG, ODD]) == [WRONG]


def test_the_exception_has_all_of_them_a_line_each():
    error = PipelineError([WRONG, ODD])
    assert isinstance(error, ConfigError)
    assert error.findings == (WRONG, ODD)
    assert str(error).splitlines() == [str(WRONG), str(ODD)]
