import random

import pytest

from omnirt.actors.text.detokenizer import Detokenizer
from omnirt.actors.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer.load(tokenizer_folder)


def byte_ids(tokenizer, text):
    """One token for each byte."""
    return [next(number for number in range(3, 259) if tokenizer.bytes_of(number) == bytes([b])) for b in text.encode()]


def test_a_character_comes_when_it_is_whole(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    held, given = [], []
    for number in byte_ids(tokenizer, "é😀a"):
        given.append(detokenizer.feed(number))
        held.append(detokenizer.holds)
    assert given == ["", "é", "", "", "", "😀", "a"]
    assert held == [True, False, True, True, True, False, False]
    assert detokenizer.close() == ""


def test_pieces_joined_are_the_text_of_all_tokens(tokenizer):
    rng = random.Random(7)
    for _ in range(1000):
        ids = [rng.randrange(0, 300) for _ in range(rng.randrange(1, 30))]
        detokenizer = Detokenizer(tokenizer)
        pieces = [detokenizer.feed(number) for number in ids]
        assert "".join(pieces) + detokenizer.close() == tokenizer.decode(ids), ids


def test_what_is_left_of_a_character_comes_at_the_end(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.feed(byte_ids(tokenizer, "中")[0]) == ""
    assert detokenizer.close() == "\ufffd"


def test_special_tokens_have_no_text(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.feed(number) for number in range(3)] == ["", "", ""]


def test_the_space_that_a_tokenizer_puts_first_is_taken_away(tokenizer_folder):
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models

    library = Library(models.BPE({"▁the": 0, "▁": 1, "x": 2}, []))
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = Tokenizer(library)
    for ids in ([0, 0, 2], [1, 0], [2, 1, 1], [1]):
        detokenizer = Detokenizer(tokenizer)
        assert "".join(detokenizer.feed(number) for number in ids) + detokenizer.close() == library.decode(ids)
