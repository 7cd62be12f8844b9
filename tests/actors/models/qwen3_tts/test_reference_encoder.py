import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from omnirt.errors import ConfigError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from omnirt.actors.models.qwen3_tts.reference_encoder import ReferenceEncoder  # noqa: E402

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
def encoder(reference, tmp_path_factory):
    return ReferenceEncoder(reference["write_checkpoint"](tmp_path_factory.mktemp("base")), "cpu", 30.0)


def test_a_voice_is_the_embedding_and_the_codes_of_the_reference(reference, encoder):
    voice = encoder.encode(reference["recording"](24_000), with_codes=True)
    with np.load(reference["GOLDEN"]) as golden:
        assert np.abs(voice.embedding - golden["embedding_24000"]).max() < 1e-5
        assert np.array_equal(voice.codes, golden["codes_24000"])
    assert (voice.embedding.dtype, voice.codes.dtype) == (np.float32, np.int32)
    assert voice.codes.flags.c_contiguous


def test_without_codes_the_embedding_is_the_same_and_there_are_no_frames(reference, encoder):
    samples = reference["recording"](24_000)
    alone = encoder.encode(samples, with_codes=False)
    assert alone.codes.shape == (0, reference["BOOKS"])
    assert np.array_equal(alone.embedding, encoder.encode(samples, with_codes=True).embedding)


def test_samples_that_cannot_be_written_to_are_taken(reference, encoder):
    samples = reference["recording"](12_000)
    samples.flags.writeable = False
    assert len(encoder.encode(samples, with_codes=True).codes) == 7


def test_a_checkpoint_that_copies_no_voices_is_refused(reference, tmp_path):
    folder = reference["write_checkpoint"](tmp_path, kind="custom_voice")
    with pytest.raises(ConfigError, match="only a Base checkpoint copies voices; this one is custom_voice"):
        ReferenceEncoder(folder, "cpu", 30.0)


def test_a_folder_that_lacks_the_speech_tokenizer_is_refused_by_the_files_name(reference, tmp_path):
    folder = reference["write_checkpoint"](tmp_path)
    (folder / "speech_tokenizer" / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"speech_tokenizer/config\.json does not exist"):
        ReferenceEncoder(folder, "cpu", 30.0)


def test_a_codec_of_another_frame_is_refused(reference, tmp_path):
    folder = reference["write_checkpoint"](tmp_path)
    path = folder / "speech_tokenizer" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"input_sample_rate": 16_000}))
    with pytest.raises(ConfigError, match="input_sample_rate"):
        ReferenceEncoder(folder, "cpu", 30.0)


@pytest.mark.gpu
def test_codes_and_embedding_are_the_same_on_a_gpu(reference, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    encoder = ReferenceEncoder(reference["write_checkpoint"](tmp_path), "cuda:0", 30.0)
    encoder.warm_up(30.0)
    with np.load(reference["GOLDEN"]) as golden:
        for seed, length in enumerate(reference["LENGTHS"]):
            voice = encoder.encode(reference["recording"](length, seed=seed), with_codes=True)
            assert np.array_equal(voice.codes, golden[f"codes_{length}"])
            assert np.abs(voice.embedding - golden[f"embedding_{length}"]).max() < 2e-5
