"""Where timelines are kept."""

import json
import logging
import os

import pytest

from omnirt.errors import ConfigError
from omnirt.trace import Timeline
from omnirt.trace_files import KEPT, SUFFIX, Traces, file_name


def ended(request, outcome="ok"):
    return Timeline("speech", request, arrived_ns=1, ended_ns=2, outcome=outcome)


def test_the_last_ones_stay_in_memory():
    traces = Traces()
    for number in range(KEPT + 10):
        traces.add(ended(f"r{number}"))
    assert traces.get("r9") is None
    assert traces.get("r10") is not None
    assert traces.get(f"r{KEPT + 9}").request == f"r{KEPT + 9}"
    traces.close()


def test_of_an_id_that_repeats_the_newest_is_kept():
    traces = Traces()
    traces.add(ended("again", "timeout"))
    traces.add(ended("again"))
    assert traces.get("again").outcome == "ok"


def test_a_request_that_was_refused_leaves_none():
    traces = Traces()
    traces.add(ended("r", "queue_full"))
    assert traces.get("r") is None


def test_each_is_a_file_named_by_its_id(tmp_path):
    traces = Traces(str(tmp_path / "new" / "folder"))
    traces.add(ended("req_1"))
    traces.add(ended("../a b/%"))
    traces.close()
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / "new" / "folder").iterdir()}
    assert {content["otherData"]["request"] for content in files.values()} == {"req_1", "../a b/%"}
    assert f"req_1{SUFFIX}" in files


@pytest.mark.parametrize(
    "request_id", ["a", "..", ".", "/", "a/b", "a\\b", "x" * 128, "/" * 128, ".hidden", "a b&c;$(d)"]
)
def test_a_name_is_safe_whatever_the_id(request_id, tmp_path):
    name = file_name(request_id)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%~")
    assert not name.startswith(".")
    (tmp_path / name).write_text("")
    assert len(name) < 255


def test_different_ids_have_different_names():
    ids = ["a/b", "a_b", "a%2Fb", ".a", "%2Ea", "/" * 127, "/" * 128]
    assert len({file_name(one) for one in ids}) == len(ids)


def test_the_oldest_files_go_and_nothing_else_does(tmp_path):
    for number in range(3):
        old = tmp_path / f"old{number}{SUFFIX}"
        old.write_text("{}")
        os.utime(old, (number + 1, number + 1))
    (tmp_path / "package.json").write_text("mine")
    traces = Traces(str(tmp_path), files_max=4)
    for number in range(3):
        traces.add(ended(f"new{number}"))
    traces.close()
    left = {path.name.removesuffix(SUFFIX) for path in tmp_path.iterdir()}
    assert left == {"old2", "new0", "new1", "new2", "package.json"}


def test_a_folder_that_cannot_be_used_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept"):
        Traces(str(tmp_path / "file"))


def test_a_disk_that_fails_is_said_once_and_stops_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("omnirt"), "propagate", True)
    traces = Traces(str(tmp_path / "t"))
    (tmp_path / "t").rmdir()
    for number in range(3):
        traces.add(ended(f"r{number}"))
    traces.close()
    assert [record.message for record in caplog.records] == ["traces cannot be written: No such file or directory"]
    assert traces.get("r2") is not None
