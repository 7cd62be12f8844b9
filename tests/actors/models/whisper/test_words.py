"""Words give back the pauses that an alignment counts to them."""

from omnirt.actors.models.whisper.words import without_pauses
from omnirt.wire.payload import Word


def words(*timed):
    return [Word(text, start, end, 0.9) for text, start, end in timed]


def test_words_of_usual_length_stay_as_they_are():
    said = words((" How", 0.0, 0.2), (" are", 0.2, 0.4), (" you?", 0.4, 0.8))
    assert without_pauses(said) == said


def test_the_first_word_behind_a_pause_begins_later():
    said = without_pauses(words((" Yes.", 0.0, 0.3), (" Please", 0.3, 2.3), (" come", 2.3, 2.6), (" in.", 2.6, 2.9)))
    assert said[1].end_s == 2.3
    assert 1.6 < said[1].start_s < 2.2
    assert [word.text for word in said] == [" Yes.", " Please", " come", " in."]


def test_the_last_word_before_a_pause_ends_earlier():
    said = without_pauses(words((" Come", 0.0, 0.3), (" in", 0.3, 0.6), (" now.", 0.6, 3.0)))
    assert said[2].start_s == 0.6
    assert said[2].end_s < 1.5


def test_no_words_are_no_words():
    assert without_pauses([]) == []
