from __future__ import annotations

import pytest

from omnirt.actors.engines.device import ensure
from omnirt.errors import NoDevice

torch = pytest.importorskip("torch")


def test_a_processor_is_always_there():
    ensure("cpu")


def test_a_gpu_that_is_not_there_is_said_with_what_torch_sees(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(NoDevice, match="built without CUDA"):
        ensure("cuda:0")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(NoDevice, match="sees no GPU"):
        ensure("cuda:0")
