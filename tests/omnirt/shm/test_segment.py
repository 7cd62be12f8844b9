from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import posix_ipc
import pytest

from omnirt.shm import segment as module
from omnirt.shm.segment import Segment, SegmentRefused, SharedMemoryFull, sweep

PAGE = 4096


def own_names(pid: int | None = None) -> list[str]:
    return [name for name in os.listdir(module.DIRECTORY) if name.startswith(f"omnirt-{pid or os.getpid()}-")]


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def run_child(code: str, fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, pass_fds=fds, capture_output=True, text=True, timeout=60, check=False)


def leave_name(name: str, nbytes: int = 0) -> None:
    memory = posix_ipc.SharedMemory(f"/{name}", posix_ipc.O_CREX, mode=0o600, size=nbytes)
    memory.close_fd()


def test_a_segment_has_no_name_and_belongs_to_its_user_alone() -> None:
    segment = Segment.create(4 * PAGE)
    status = os.fstat(segment.fd)
    assert own_names() == []
    assert status.st_nlink == 0
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == segment.nbytes == 4 * PAGE
    assert status.st_blocks * 512 >= 4 * PAGE, "allocated, not sparse"
    segment.close()


def test_the_name_is_gone_before_the_segment_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], int]] = []
    fallocate = os.posix_fallocate

    def spy(fd: int, offset: int, nbytes: int) -> None:
        seen.append((own_names(), os.fstat(fd).st_size))
        fallocate(fd, offset, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", spy)
    Segment.create(PAGE).close()
    assert seen == [([], 0)]


def test_two_mappings_of_one_descriptor_see_each_other() -> None:
    one = Segment.create(2 * PAGE)
    two = Segment.attach(os.dup(one.fd), 2 * PAGE)
    one.array[5] = 77
    assert two.array[5] == 77
    assert one.address != two.address
    one.close()
    assert two.array[5] == 77, "the memory lives as long as one descriptor or mapping does"
    two.close()


def test_a_full_shared_memory_is_an_error_that_names_numbers_and_the_container_flag() -> None:
    status = os.statvfs(module.DIRECTORY)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SharedMemoryFull) as caught:
        Segment.create(status.f_blocks * status.f_frsize + PAGE)
    assert caught.value.needed_bytes > caught.value.available_bytes > 0
    assert "/dev/shm" in caught.value.message
    assert "--shm-size=" in caught.value.message
    assert f"{caught.value.needed_bytes / (1 << 20):.1f} MB" in caught.value.message
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert own_names() == []


@pytest.mark.parametrize(("nbytes", "flag"), [(1 << 20, "64m"), (60 << 20, "128m"), (3 << 30, "8g")])
def test_the_suggested_size_is_round_and_roomy(nbytes: int, flag: str) -> None:
    assert f"--shm-size={flag} " in SharedMemoryFull(nbytes, 0).message


def test_a_segment_of_another_size_is_refused() -> None:
    segment = Segment.create(PAGE)
    with pytest.raises(SegmentRefused, match="expected 8192"):
        Segment.attach(segment.fd, 2 * PAGE)
    segment.close()


@pytest.mark.parametrize("mode", [0o660, 0o604, 0o666])
def test_a_segment_open_to_others_is_refused(mode: int) -> None:
    segment = Segment.create(PAGE)
    os.fchmod(segment.fd, mode)
    with pytest.raises(SegmentRefused, match=f"mode {mode:o}"):
        Segment.attach(segment.fd, PAGE)
    segment.close()


def test_a_segment_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    segment = Segment.create(PAGE)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(SegmentRefused, match=f"belongs to user {me}"):
        Segment.attach(segment.fd, PAGE)
    segment.close()


def test_a_name_that_is_taken_is_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.secrets, "token_hex", lambda _: "00")
    name = f"omnirt-{os.getpid()}-00"
    leave_name(name, PAGE)
    try:
        with pytest.raises(posix_ipc.ExistentialError):
            Segment.create(PAGE)
    finally:
        posix_ipc.unlink_shared_memory(f"/{name}")


def test_a_name_removed_from_outside_in_the_middle_of_create_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Removed(posix_ipc.SharedMemory):
        def unlink(self) -> None:
            super().unlink()
            super().unlink()

    monkeypatch.setattr(posix_ipc, "SharedMemory", Removed)
    segment = Segment.create(PAGE)
    segment.array[0] = 1
    segment.close()


def test_close_does_not_raise_while_views_live_and_they_stay_valid() -> None:
    segment = Segment.create(PAGE)
    view = segment.array[100:200]
    view[:] = 9
    segment.close()
    segment.close()
    assert view.sum() == 900
    view[0] = 1
    with pytest.raises(ValueError, match="closed"):
        _ = segment.array


def test_the_original_error_survives_a_close_under_a_live_view() -> None:
    segment = Segment.create(PAGE)
    with pytest.raises(ZeroDivisionError):
        _divide_with_view(segment)
    assert segment.fd == -1


def _divide_with_view(segment: Segment) -> None:
    view = segment.array[:10]
    try:
        view[0] = 1 // 0
    finally:
        segment.close()


def test_the_last_view_unmaps() -> None:
    segment = Segment.create(PAGE)
    gone = weakref.ref(segment.array.base.obj if isinstance(segment.array.base, memoryview) else segment.array.base)
    view = segment.array[:10][2:4]
    segment.close()
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_touching_an_attached_segment_takes_no_page_fault() -> None:
    pages = 256
    creator = Segment.create(pages * PAGE)
    attached = Segment.attach(os.dup(creator.fd), pages * PAGE)
    for segment in (creator, attached):
        step = segment.array[::PAGE]
        step[:1] = 1  # numpy's own first-use pages
        before = _minor_faults()
        step[:] = 7
        assert int(step.sum()) == 7 * pages
        assert _minor_faults() - before < pages // 8
        segment.close()


def _minor_faults() -> int:
    return int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[7])


ATTACH = "import os; from omnirt.shm.segment import Segment; s = Segment.attach({fd}, 4096); s.array[1] = 5; {end}"


@pytest.mark.kill
@pytest.mark.parametrize("end", ["pass", "s.close()", "os.kill(os.getpid(), 9)", "raise SystemExit(3)"])
def test_a_process_that_attached_and_ends_leaves_the_segment_and_says_nothing(end: str) -> None:
    segment = Segment.create(PAGE)
    segment.array[0] = 3
    done = run_child(ATTACH.format(fd=segment.fd, end=end), (segment.fd,))
    assert done.stderr == ""
    assert segment.array[:2].tolist() == [3, 5]
    again = Segment.attach(os.dup(segment.fd), PAGE)
    assert again.array[1] == 5
    again.close()
    segment.close()


@pytest.mark.kill
def test_a_creator_that_ends_cleanly_or_is_killed_leaves_no_name_and_no_warning() -> None:
    code = (
        "import os; from omnirt.shm.segment import Segment; s = Segment.create(1 << 20); s.array[0] = 1; "
        "print(os.getpid()); {}"
    )
    for end in ("", "s.close()", "import sys; sys.stdout.flush(); os.kill(os.getpid(), 9)"):
        done = run_child(code.format(end))
        assert done.stderr == ""
        assert own_names(int(done.stdout)) == []


@pytest.mark.kill
def test_nothing_holds_the_memory_once_its_last_process_is_killed() -> None:
    code = (
        "import os, sys; from omnirt.shm.segment import Segment; s = Segment.create(1 << 20); s.array[0] = 1; "
        "print(os.getpid(), flush=True); sys.stdin.read()"
    )
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert int(child.stdout.readline()) == child.pid
        assert holders(child.pid) == [child.pid]
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=30)
        assert holders(child.pid) == []
        assert own_names(child.pid) == []


def holders(creator: int) -> list[int]:
    """Processes that map a segment created by `creator`; with none, the kernel has freed it."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text()
        except OSError:
            continue
        if f"{module.DIRECTORY}/omnirt-{creator}-" in maps:
            found.append(int(process.name))
    return found


def test_sweep_removes_what_a_kill_between_the_two_calls_leaves_and_nothing_else() -> None:
    dead = dead_pid()
    left, sized = f"omnirt-{dead}-ab", f"omnirt-{dead}-cd"
    living, foreign = f"omnirt-{os.getpid()}-ef", f"omnirt-x{dead}-01"
    leave_name(left)
    leave_name(sized, PAGE)
    leave_name(living)
    leave_name(foreign)
    try:
        removed = sweep()
        present = os.listdir(module.DIRECTORY)
        assert left in removed
        assert left not in present
        for name in (sized, living, foreign):
            assert name not in removed
            assert name in present
    finally:
        for name in (sized, living, foreign):
            posix_ipc.unlink_shared_memory(f"/{name}")


def test_a_view_is_plain_memory_for_other_libraries() -> None:
    segment = Segment.create(PAGE)
    floats = segment.array[:64].view(np.float32)
    floats[:] = 1.5
    assert memoryview(floats).nbytes == 64
    segment.close()
    assert float(floats.sum()) == 24.0
