"""Where text is cut, in whatever pieces it comes."""

import pytest

from omnirt.gateway.text_split import Splitter

ENGLISH = 'Hello world. It is 3.14 now, "really!" he said; yes...\nBye: see you'
CHINESE = "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u518d\u89c1\uff01"


def units(granularity, pieces):
    splitter, found = Splitter(granularity), [""]
    for piece in pieces:
        for text, ends in splitter.feed(piece):
            found[-1] += text
            if ends:
                found.append("")
    return [unit.strip() for unit in found if unit.strip()]


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("none", [ENGLISH]),
        ("sentence", ["Hello world.", 'It is 3.14 now, "really!"', "he said; yes...", "Bye: see you"]),
        ("clause", ["Hello world.", "It is 3.14 now,", '"really!"', "he said;", "yes...", "Bye:", "see you"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_it_is_cut_the_same_in_whatever_pieces_it_comes(granularity, expected, size):
    assert units(granularity, [ENGLISH[i : i + size] for i in range(0, len(ENGLISH), size)]) == expected


@pytest.mark.parametrize("size", [1, 100])
def test_full_stops_of_other_scripts_need_no_space(size):
    pieces = [CHINESE[i : i + size] for i in range(0, len(CHINESE), size)]
    assert units("sentence", pieces) == [CHINESE[:6], CHINESE[6:]]
    assert units("clause", pieces) == [CHINESE[:3], CHINESE[3:6], CHINESE[6:]]


@pytest.mark.parametrize("granularity", ["none", "sentence", "clause"])
def test_nothing_is_held_back_or_lost(granularity):
    splitter = Splitter(granularity)
    for character in ENGLISH + CHINESE:
        assert "".join(text for text, _ in splitter.feed(character)) == character


def test_a_full_stop_ends_a_sentence_only_once_a_space_shows():
    splitter = Splitter("sentence")
    assert list(splitter.feed("It is 3.")) == [("It is 3.", False)]
    assert list(splitter.feed("14")) == [("14", False)]
    assert list(splitter.feed(". ")) == [(".", True), (" ", False)]
    assert list(splitter.feed("Yes.")) == [("Yes.", False)]
    assert list(splitter.feed(" No")) == [("", True), (" No", False)]
