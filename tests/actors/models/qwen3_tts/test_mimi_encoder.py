import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from omnirt.errors import ConfigError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from omnirt.actors.models.qwen3_tts.config import read_json  # noqa: E402
from omnirt.actors.models.qwen3_tts.mimi_encoder import CodecConfig, MimiEncoder  # noqa: E402
from omnirt.actors.models.qwen3_tts.reference_weights import WeightsBelow  # noqa: E402

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


@pytest.fixture(scope="module")
def folder(reference, tmp_path_factory):
    return reference["write_checkpoint"](tmp_path_factory.mktemp("checkpoint")) / "speech_tokenizer"


@pytest.fixture(scope="module")
def encoder(folder):
    return made(folder)


def made(folder, seconds_max=30.0, **changes):
    fields = read_json(folder / "config.json")
    fields["encoder_config"] |= changes
    return MimiEncoder(CodecConfig.of(fields), WeightsBelow(folder, "encoder."), "cpu", seconds_max)


def encoded(encoder, samples):
    with torch.inference_mode():
        return encoder.encode(torch.from_numpy(samples)).numpy()


def test_codes_are_those_of_the_reference_at_every_length(reference, golden, encoder):
    for seed, length in enumerate(reference["LENGTHS"]):
        found = encoded(encoder, reference["recording"](length, seed=seed))
        assert np.array_equal(found, golden[f"codes_{length}"]), length


def test_a_recording_attends_to_all_of_its_past_as_the_reference_does(reference, golden, folder):
    """The golden recordings are longer than the window in their configuration, and it makes a difference."""
    windowed = made(folder, seconds_max=10 / 24_000)
    found = encoded(windowed, reference["recording"](60_000, seed=3))
    assert not np.array_equal(found, golden["codes_60000"])


def test_the_last_frame_is_one_that_has_only_begun(reference, encoder):
    for length, frames in ((1920 * 7, 7), (1920 * 7 + 1, 8), (1920 * 8 - 1, 8)):
        assert encoded(encoder, reference["recording"](length)).shape == (frames, reference["BOOKS"])


def test_neither_the_decoder_nor_codebooks_that_are_not_used_are_loaded(reference, encoder):
    names = list(encoder._model.state_dict())
    assert not [name for name in names if name.startswith(("decoder", "upsample"))]
    books = {name.rpartition(".codebook")[0] for name in names if ".codebook" in name}
    assert len(books) == reference["BOOKS"] < reference["ENCODER"]["num_quantizers"]


def test_codes_do_not_depend_on_what_was_encoded_before(reference, encoder):
    first, second = (reference["recording"](20_000, seed=seed) for seed in (1, 2))
    alone = encoded(encoder, first)
    encoded(encoder, second)
    assert np.array_equal(encoded(encoder, first), alone)


def test_sizes_that_every_convolution_asks_for_are_not_on_the_device(encoder):
    sizes = [buffer for name, buffer in encoder._model.named_buffers() if name.endswith(("stride", "padding_total"))]
    assert sizes
    assert {buffer.device.type for buffer in sizes} == {"cpu"}


def test_tensors_that_are_missing_are_named(folder):
    with pytest.raises(ConfigError, match=r"missing: encoder\.encoder_transformer\.layers\.2\.self_attn"):
        made(folder, num_hidden_layers=3)


def test_tensors_of_another_shape_are_named_with_both_shapes(folder):
    with pytest.raises(ConfigError, match=r"fc1\.weight is \[48, 32\], config.json says \[64, 32\]"):
        made(folder, intermediate_size=64)


def test_a_configuration_that_makes_no_model_is_refused(folder):
    with pytest.raises(ConfigError, match="encoder_config"):
        CodecConfig.of({"encoder_valid_num_quantizers": 16})
    with pytest.raises(ConfigError, match="encoder_config"):
        made(folder, num_attention_heads=5)
    for fields in ({"hidden_size": "x"}, {"hidden_act": "x"}):
        with pytest.raises(ConfigError, match="encoder_config") as error:
            made(folder, **fields)
        assert "\n" not in error.value.message
    with pytest.raises(ConfigError, match="encode_downsample_rate"):
        CodecConfig.of({"encoder_config": {}, "encode_downsample_rate": 0})


def test_without_transformers_it_says_which_extra_is_missing(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="omnirt's extra qwen3-tts"):
        made(folder)
