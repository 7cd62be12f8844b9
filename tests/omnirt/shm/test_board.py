from __future__ import annotations

import os
import subprocess
import sys

import pytest

from omnirt.shm.board import STEP_SLOTS_MAX, Board


def test_progress_rises_at_the_begin_and_at_the_end_of_a_step() -> None:
    head = Board.create(3)
    node = Board.attach(os.dup(head.fd), 3)
    assert [head.progress(index) for index in range(3)] == [0, 0, 0]
    node.begin_step(1, [7, 9])
    assert head.progress(1) == 1
    assert head.in_step(1) == [7, 9]
    node.end_step(1)
    assert head.progress(1) == 2
    assert head.in_step(1) == []
    assert head.progress(0) == head.progress(2) == 0
    head.close()
    node.close()


def test_a_new_step_shows_its_own_slots_only() -> None:
    board = Board.create(1)
    board.begin_step(0, [1, 2, 3])
    board.end_step(0)
    board.begin_step(0, [4])
    assert board.in_step(0) == [4]
    board.end_step(0)
    board.begin_step(0, [])
    assert board.in_step(0) == []
    assert board.progress(0) % 2 == 1
    board.close()


def test_a_batch_larger_than_the_line_notes_its_first_requests_and_touches_no_neighbour() -> None:
    board = Board.create(2)
    board.begin_step(0, list(range(1, STEP_SLOTS_MAX + 50)))
    assert board.in_step(0) == list(range(1, STEP_SLOTS_MAX + 1))
    assert board.progress(1) == 0
    assert board.in_step(1) == []
    board.close()


def test_a_step_that_has_not_ended_cannot_begin_and_the_other_way_round() -> None:
    board = Board.create(1)
    with pytest.raises(AssertionError):
        board.end_step(0)
    board.begin_step(0, [1])
    with pytest.raises(AssertionError):
        board.begin_step(0, [2])
    assert board.in_step(0) == [1]
    board.close()


@pytest.mark.kill
def test_the_board_names_the_requests_a_process_died_with() -> None:
    board = Board.create(2)
    code = (
        "import os; from omnirt.shm.board import Board; "
        f"b = Board.attach({board.fd}, 2); b.begin_step(1, [5, 6]); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], pass_fds=(board.fd,), timeout=60, check=False)
    assert done.returncode == -9
    assert board.in_step(1) == [5, 6]
    board.reset(1)
    assert board.in_step(1) == []
    board.begin_step(1, [8])
    assert board.in_step(1) == [8]
    board.close()
