import json

import numpy as np
import pytest

from omnirt.errors import ConfigError

pytest.importorskip("torch")

from omnirt.actors.models.qwen3_tts.reference_weights import WeightsBelow


@pytest.fixture
def folder(tmp_path):
    array = np.arange(6, dtype="<f4")
    head = json.dumps({"part.one": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + array.tobytes())
    return tmp_path


def test_tensors_are_found_below_their_prefix(folder):
    (found,) = WeightsBelow(folder, "part.").tensors({"one": (2, 3)}).values()
    assert found.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_all_that_does_not_fit_is_named_at_once(folder):
    with pytest.raises(ConfigError, match=r"missing: part\.two; of another shape: part\.one is \[2, 3\]"):
        WeightsBelow(folder, "part.").tensors({"one": (3, 2), "two": (1,)})


def test_only_the_first_of_many_names_are_listed(folder):
    with pytest.raises(ConfigError, match=r"part\.t4 and 3 more"):
        WeightsBelow(folder, "part.").tensors({f"t{at}": (1,) for at in range(8)})


def test_a_folder_without_weights_is_named(tmp_path):
    with pytest.raises(ConfigError, match=str(tmp_path)):
        WeightsBelow(tmp_path, "part.")
