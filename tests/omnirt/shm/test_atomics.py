from __future__ import annotations

import re

import numba
import numpy as np
import pytest

from omnirt.shm import atomics


@pytest.fixture
def word() -> np.ndarray:
    return np.zeros(4, np.int64)


def test_a_released_store_is_what_an_acquiring_load_reads(word: np.ndarray) -> None:
    address = word.ctypes.data
    for value in (0, 1, -1, (1 << 62) + 5):
        atomics.store_release(address + 8, value)
        assert atomics.load_acquire(address + 8) == value
    assert word[0] == word[2] == 0
    atomics.full_fence()


def _fenced_block(name: str) -> list[str]:
    """The atomic accesses of the straight piece of compiled code that holds the fence, in order."""
    from omnirt.shm.operations import FUNCTIONS

    compiled = numba.njit("int64(int64)", error_model="numpy")(FUNCTIONS[name][0].py_func)
    text = next(iter(compiled.inspect_llvm().values()))
    blocks = re.split(r"^\S+:", text, flags=re.MULTILINE)
    (block,) = (block for block in blocks if "fence seq_cst" in block)
    found = re.findall(r"(load|store) atomic .*? (monotonic|acquire|release),|(fence) seq_cst", block)
    return [" ".join(part for part in match if part) for match in found]


@pytest.mark.slow
def test_publish_fences_fully_between_the_head_and_the_waiting_flag() -> None:
    assert _fenced_block("publish")[-3:] == ["store release", "fence", "load monotonic"]


@pytest.mark.slow
def test_park_fences_fully_between_the_waiting_flag_and_the_head() -> None:
    accesses = _fenced_block("park")
    fence = accesses.index("fence")
    assert accesses[fence - 1] == "store monotonic"
    assert "load acquire" in accesses[fence:]
