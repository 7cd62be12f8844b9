import subprocess
import sys

import pytest

from omnirt.actors.models.cache import cached, existing
from omnirt.errors import ConfigError


def test_a_folder_is_made_once_and_then_only_read(tmp_path):
    made = []

    def make(part):
        made.append(part)
        (part / "sub").mkdir()
        (part / "sub" / "file").write_text("whole")

    assert existing("thing-1", tmp_path) is None
    folder = cached("thing-1", make, tmp_path)
    assert cached("thing-1", make, tmp_path) == folder == existing("thing-1", tmp_path)
    assert (folder / "sub" / "file").read_text() == "whole"
    assert len(made) == 1


def test_a_folder_that_could_not_be_filled_never_appears(tmp_path):
    def fail(part):
        (part / "half").write_text("half")
        raise ConfigError("wrong bytes")

    with pytest.raises(ConfigError, match="wrong bytes"):
        cached("thing", fail, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]


def test_what_a_killed_process_left_is_not_used(tmp_path):
    (tmp_path / ".thing.part").mkdir()
    (tmp_path / ".thing.part" / "old").write_text("half")
    folder = cached("thing", lambda part: (part / "new").write_text("whole"), tmp_path)
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_a_place_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept in"):
        cached("thing", lambda part: None, tmp_path / "file")


def test_of_several_processes_one_makes_it_and_all_get_it(tmp_path):
    program = """
import sys, uuid
from pathlib import Path
from omnirt.actors.models.cache import cached

def make(part):
    for number in range(200):
        (part / str(number)).write_text("x")
    (part / "maker").write_text(uuid.uuid4().hex)

sys.stdin.readline()
folder = cached("thing", make, Path(sys.argv[1]))
print(len(list(folder.iterdir())), (folder / "maker").read_text())
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], **pipes) for _ in range(4)]
    answers = {child.communicate("go\n", timeout=60)[0] for child in children}
    assert len(answers) == 1
    assert answers.pop().startswith("201 ")
