"""Where kernels written in Triton run: on the device, or interpreted on the processor when there is none."""

from __future__ import annotations

import os

import numpy as np
import pytest


@pytest.fixture(scope="session")
def triton_device() -> str:
    """Ask for it before importing a module of such kernels."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.importorskip("triton")
        return "cuda"
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
    pytest.importorskip("triton")
    try:
        int(np.zeros(1))  # as its interpreter does for the bounds of a loop
    except TypeError:
        pytest.skip("the interpreter of triton wants numpy < 2.4")
    return "cpu"
