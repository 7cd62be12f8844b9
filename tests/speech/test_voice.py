"""The two halves of the voice together, and whether a listener understands them."""

import re

import numpy as np
import pytest

RATE = 24_000
PARAGRAPH = (
    "The morning train was late again, so we waited on the platform and watched the rain. A woman with a red umbrella "
    "was reading a newspaper, and two children were counting the pigeons on the roof. When the train finally came, "
    "nobody hurried, because everyone knew that the whole day would be slow and quiet and a little bit sad anyway."
)
"""Sixty-one words."""


def answers(voice, texts, **params):
    return [(text, voice.say(text, **params), RATE) for text in texts]


@pytest.mark.slow
def test_twenty_sentences_are_understood(voice, sentences, hearing):
    assert len(sentences) == 20
    heard = hearing(answers(voice, sentences))
    assert heard.rate <= 0.03, heard.differences


@pytest.mark.slow
def test_figures_are_understood(voice, figures, hearing):
    heard = hearing(answers(voice, figures))
    assert heard.rate <= 0.05, heard.differences


@pytest.mark.slow
def test_fast_speech_is_understood(voice, sentences, hearing):
    heard = hearing(answers(voice, sentences[:5], speed=1.5))
    assert heard.rate <= 0.05, heard.differences


@pytest.mark.slow
def test_every_number_of_a_longer_text_is_heard_once_and_in_order(voice, sentences, transcribe):
    numbers = [41, 42, 53, 64]
    text = " ".join(f"Number {n}. {sentence}" for n, sentence in zip(numbers, sentences[1:], strict=False))
    heard = transcribe(voice.say(text), RATE)
    assert [int(n) for n in re.findall(r"\d+", heard)] == numbers


@pytest.mark.parametrize("speed", [0.25, 0.5, 0.8, 1.25, 2.0, 4.0])
def test_speed_changes_the_duration_by_what_was_asked(voice, speed):
    normal, changed = len(voice.say(PARAGRAPH)), len(voice.say(PARAGRAPH, speed=speed))
    assert changed * speed / normal == pytest.approx(1, abs=0.01)


def test_the_same_seed_gives_the_same_samples_and_another_seed_others(voice):
    first, again, other = voice.say("Hello there."), voice.say("Hello there."), voice.say("Hello there.", seed=2)
    np.testing.assert_array_equal(first, again)
    assert len(first) == len(other)
    assert (first != other).any()


def test_a_long_answer_leaves_in_many_chunks_of_whole_samples(voice):
    chunks = voice.chunks(PARAGRAPH)
    assert len(chunks) > 50
    assert all(chunk.dtype == np.int16 and 0 < len(chunk) <= 12_000 for chunk in chunks)
    assert 15 < sum(map(len, chunks)) / RATE < 25


def test_the_first_clause_is_a_small_part_of_the_whole(voice):
    """What keeps the first sound early: the network has to do no more than this before it."""
    seconds = np.array([len(chunk) for chunk in voice.chunks(PARAGRAPH)]) / RATE
    silent = next(at for at, chunk in enumerate(voice.chunks(PARAGRAPH)) if at and not chunk[:500].any())
    assert seconds[:silent].sum() < 0.15 * seconds.sum()


def test_clauses_begin_and_end_quietly(voice):
    """No click where speech meets silence: within a clause's first and last 2 ms the level is next to nothing."""
    samples = voice.say(PARAGRAPH).astype(int)
    sound = np.flatnonzero(samples)
    gaps = np.flatnonzero(np.diff(sound) > 500)
    assert len(gaps) == 3
    for gap in gaps:
        end, start = sound[gap], sound[gap + 1]
        assert np.abs(samples[end - 48 : end + 1]).max() < 400
        assert np.abs(samples[start : start + 48]).max() < 400


def test_nothing_is_clipped(voice):
    assert np.abs(voice.say(PARAGRAPH).astype(int)).max() < 32_700
