from omnirt.cli import plan as command
from omnirt.cli.main import main


def test_the_plan_is_printed_with_the_free_memory(capsys):
    assert main(["plan", "maze"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("pipeline maze: text -> text, audio\n")
    assert "/dev/shm has" in out


def test_too_little_memory_is_said_with_the_flag_that_raises_it(capsys, monkeypatch):
    monkeypatch.setattr(command, "shm_free_bytes", lambda: 1 << 20)
    assert main(["plan", "maze"]) == 1
    assert "--shm-size=" in capsys.readouterr().out
