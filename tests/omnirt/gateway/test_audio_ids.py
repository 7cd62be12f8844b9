"""What spoken answers said, for as long as a client may refer to them."""

import pytest

from omnirt.gateway import audio_ids
from omnirt.gateway.audio_ids import LIFE_S, AudioIds


@pytest.fixture
def clock():
    return [1000]


@pytest.fixture
def ids(clock):
    return AudioIds(lambda: clock[0])


def test_an_answer_can_be_referred_to_until_it_expires(ids, clock):
    assert ids.keep("audio_1", "hello") == 1000 + LIFE_S
    clock[0] += LIFE_S - 1
    assert ids.transcript("audio_1") == "hello"
    clock[0] += 1
    assert ids.transcript("audio_1") is None


def test_an_unknown_id_is_nothing(ids):
    assert ids.transcript("audio_1") is None


def test_ids_are_not_to_be_guessed(ids):
    made = {ids.new() for _ in range(100)}
    assert len(made) == 100
    assert all(len(name) >= 24 and name.startswith("audio_") for name in made)


def test_the_oldest_goes_when_there_are_too_many(ids, monkeypatch):
    monkeypatch.setattr(audio_ids, "ENTRIES_MAX", 2)
    for index in range(3):
        ids.keep(f"audio_{index}", "hello")
    assert [ids.transcript(f"audio_{index}") for index in range(3)] == [None, "hello", "hello"]


def test_the_oldest_go_when_they_are_too_long_together(ids, monkeypatch):
    monkeypatch.setattr(audio_ids, "CHARS_MAX", 10)
    for index in range(4):
        ids.keep(f"audio_{index}", "12345")
    assert [ids.transcript(f"audio_{index}") for index in range(4)] == [None, None, "12345", "12345"]
    ids.keep("long", "x" * 100)
    assert ids.transcript("long") == "x" * 100, "the newest is always kept"
    assert ids.transcript("audio_3") is None
