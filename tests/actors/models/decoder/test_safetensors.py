import numpy as np
import pytest
from safetensors.numpy import save_file

from omnirt.actors.models.decoder.safetensors import Tensors
from omnirt.errors import ConfigError


def test_every_kind_of_float_is_read_as_float32(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    values = torch.randn(3, 5)
    kinds = {"f4": torch.float32, "f2": torch.float16, "b2": torch.bfloat16, "f8": torch.float64}
    stored = {name: values.to(kind) for name, kind in kinds.items()}
    save_torch({**stored, "one": torch.tensor(2.5), "none": torch.zeros(0, 4)}, tmp_path / "x", {"format": "pt"})
    tensors = Tensors(tmp_path / "x")
    for name, tensor in stored.items():
        assert tensors.read(name).dtype == np.float32
        assert np.array_equal(tensors.read(name), tensor.float().numpy()), name
    assert tensors.read("one") == 2.5
    assert tensors.read("none").shape == tensors.shape("none") == (0, 4)
    assert set(tensors) == {*stored, "one", "none"}


def test_other_types_and_broken_files_are_named(tmp_path):
    path = tmp_path / "x"
    save_file({"i": np.zeros(3, np.int8)}, path)
    with pytest.raises(ConfigError, match="i is stored as I8"):
        Tensors(path)
    save_file({"a": np.zeros(100, np.float32)}, path)
    whole = path.read_bytes()
    for cut in (b"", whole[:5], whole[:40], whole[:-1], b"\xff" * 8 + whole[8:], whole[:8] + b"}" + whole[9:]):
        path.write_bytes(cut)
        with pytest.raises(ConfigError, match="x"):
            Tensors(path)
