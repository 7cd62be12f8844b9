from omnirt.cli.main import main


def test_a_right_pipeline_is_ok(capsys):
    assert main(["check", "maze"]) == 0
    assert capsys.readouterr().out == "maze: ok, 6 stages, 11 edges, 4 nodes\n"


def test_every_finding_is_a_line_and_the_status_is_1(capsys):
    assert main(["check", "echo", "--set", "stage.echo.batch=0", "--set", "inputs=['txt']"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "echo: 3 errors"
    assert "inputs: no stage takes 'txt' (did you mean 'text'?)" in lines[1]
    assert len(lines) == 4
