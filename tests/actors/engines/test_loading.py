import sys

import pytest

from omnirt.actors.engines.language import LanguageEngine
from omnirt.actors.models.decoder import native
from omnirt.errors import ConfigError


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_without_torch_what_needs_it_says_how_to_get_it(checkpoint, monkeypatch, device):
    monkeypatch.setattr(native, "shape_of", lambda config: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match="needs torch, which is not installed: install omnirt's extra torch"):
        LanguageEngine.load(checkpoint, device=device)


@pytest.mark.parametrize(
    ("is_compiled", "packing"),
    [(True, "packing weights"), (False, "packing weights, compiling the kernel (once on this machine, about 20 s)")],
)
def test_what_takes_long_is_said_before_it(checkpoint, monkeypatch, is_compiled, packing):
    monkeypatch.setattr(native, "is_compiled", lambda: is_compiled)
    said = []
    LanguageEngine.load(checkpoint, report=said.append)
    assert "up to" in said[0]
    assert said[1:] == [packing, "warming up"]


def test_a_mistyped_kind_of_weights_is_refused_with_the_nearest(checkpoint):
    with pytest.raises(ConfigError, match="bfloat16"):
        LanguageEngine.load(checkpoint, dtype="bfloat61")
