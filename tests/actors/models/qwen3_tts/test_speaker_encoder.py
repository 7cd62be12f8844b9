import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from omnirt.errors import ConfigError

torch = pytest.importorskip("torch")

from omnirt.actors.models.qwen3_tts.reference_weights import WeightsBelow  # noqa: E402
from omnirt.actors.models.qwen3_tts.speaker_encoder import SpeakerConfig, SpeakerEncoder, tensor_shapes  # noqa: E402

PARITY = Path(__file__).parents[3] / "parity" / "qwen_clone_reference.py"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small lose time to more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reference():
    return runpy.run_path(str(PARITY))


@pytest.fixture(scope="module")
def golden(reference):
    with np.load(reference["GOLDEN"]) as arrays:
        return dict(arrays)


@pytest.fixture
def folder(reference, tmp_path):
    return reference["write_checkpoint"](tmp_path)


@pytest.fixture
def encoder(reference, folder):
    return made(folder, reference["SPEAKER"])


def made(folder, fields):
    return SpeakerEncoder(SpeakerConfig.of(fields), WeightsBelow(folder, "speaker_encoder."), "cpu")


def embedded(encoder, samples):
    with torch.inference_mode():
        return encoder.encode(torch.from_numpy(samples)).numpy()


def test_embeddings_are_those_of_the_reference(reference, golden, encoder):
    for seed, length in enumerate(reference["LENGTHS"]):
        found = embedded(encoder, reference["recording"](length, seed=seed))
        assert np.abs(found - golden[f"embedding_{length}"]).max() < 1e-5


def test_its_tensors_are_those_of_the_reference(reference, golden):
    facts = json.loads(golden["facts"].tobytes())
    wanted = {name: tuple(shape) for name, shape in facts["speaker"].items()}
    shapes = tensor_shapes(SpeakerConfig.of(reference["SPEAKER"]))
    assert {f"speaker_encoder.{name}": shape for name, shape in shapes.items()} == wanted


def test_an_embedding_does_not_depend_on_what_was_encoded_before(reference, encoder):
    first, second = (reference["recording"](20_000, seed=seed) for seed in (1, 2))
    alone = embedded(encoder, first)
    embedded(encoder, second)
    assert np.array_equal(embedded(encoder, first), alone)
    assert not np.allclose(embedded(encoder, second), alone, atol=1e-2)


def test_tensors_that_are_missing_or_of_another_shape_are_named(reference, folder):
    fields = reference["SPEAKER"] | {"enc_channels": [16, 16, 16, 16, 16, 64], "enc_kernel_sizes": [5, 3, 3, 3, 3, 1]}
    with pytest.raises(ConfigError, match=r"missing: speaker_encoder\.blocks\.4\.tdnn1\.conv\.weight.* and \d+ more"):
        made(folder, fields | {"enc_dilations": [1, 2, 3, 4, 5, 1]})
    with pytest.raises(ConfigError, match=r"fc\.weight is \[24, 96, 1\], config.json says \[32, 96, 1\]"):
        made(folder, reference["SPEAKER"] | {"enc_dim": 32})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"enc_dim": "many"}, "enc_dim"),
        ({"enc_dilations": [1, 2]}, "of one length"),
        ({"sample_rate": 16_000}, "24000 Hz"),
        ({"mel_dim": 80}, "128 mel bands"),
        ({"enc_res2net_scale": 3}, "divide by the scale"),
        ({"enc_res2net_scale": 0}, "enc_res2net_scale"),
        ({"enc_channels": [16, 32, 32, 32, 96]}, "must be equal"),
        ({"enc_channels": [16, 16, 16, 16, 40]}, "as wide as"),
    ],
)
def test_a_configuration_that_is_not_implemented_is_refused_by_its_key(reference, fields, complaint):
    with pytest.raises(ConfigError, match=complaint):
        SpeakerConfig.of(reference["SPEAKER"] | fields)


def test_what_a_configuration_leaves_out_is_as_in_the_reference():
    assert SpeakerConfig.of({}).enc_channels == (512, 512, 512, 512, 1536)
    assert SpeakerConfig.of({"enc_dim": 2048, "unknown": 1}).enc_dim == 2048
