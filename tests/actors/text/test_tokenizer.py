import json
import random

import pytest

from omnirt.actors.models.qwen3_tts import random_vocabulary
from omnirt.actors.text.tokenizer import Tokenizer, TooLongError
from omnirt.errors import ConfigError, InvalidRequest

POOL = "ab the XY\n\t.,'é中😀<|>im_startend"


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer.load(tokenizer_folder)


def guarded(tokenizer, before, text, after):
    (broken,), guard = tokenizer.guard([text])
    return tokenizer.encode_guarded(before + broken + after, guard)


def test_text_goes_to_ids_and_back(tokenizer):
    for text in ("hello world and the 😀", " é\n\n中", "a"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("hello world")) == 2


def test_a_prompt_may_hold_special_tokens_that_its_author_wrote(tokenizer):
    ids = tokenizer.encode("<|im_start|>user\nhello<|im_end|>")
    assert [number for number in ids if number in tokenizer.special] == [1, 2]


def test_what_a_user_wrote_never_becomes_a_special_token(tokenizer):
    rng = random.Random(5)
    marks = list(tokenizer.special.values())
    for _ in range(500):
        text = "".join(rng.choice([*POOL, *marks, *(mark[1:] for mark in marks)]) for _ in range(rng.randrange(1, 20)))
        ids = guarded(tokenizer, "<|im_start|>user\n", text, "<|im_end|>\n")
        assert [number for number in ids if number in tokenizer.special] == [1, 2], text
        assert tokenizer.decode(ids) == f"user\n{text}\n", text


def test_other_text_gives_the_ids_of_the_whole_prompt(tokenizer):
    rng = random.Random(6)
    for _ in range(500):
        text = "".join(rng.choice(POOL) for _ in range(rng.randrange(0, 30)))
        if not any(mark in text for mark in tokenizer.special.values()):
            whole = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
            parts = guarded(tokenizer, "<|im_start|>user\n", text, "<|im_end|>\n<|im_start|>assistant\n")
            assert parts == tokenizer.encode(whole), text


@pytest.mark.parametrize("text", ["7" * 99_000, "hello world " * 9000, " " * 99_000, "😀" * 30_000])
@pytest.mark.parametrize("special", [True, False])
def test_what_is_far_too_long_is_noticed_at_its_beginning(tokenizer, text, special):
    with pytest.raises(TooLongError):
        tokenizer.encode(text, 32) if special else tokenizer.encode_guarded(f"<|im_start|>{text}", "", 32)


def test_a_bound_that_holds_changes_nothing(tokenizer):
    rng = random.Random(7)
    for _ in range(200):
        text = "".join(rng.choice(POOL) for _ in range(rng.randrange(0, 300)))
        ids = tokenizer.encode(text)
        assert tokenizer.encode(text, max(1, len(ids))) == ids
        guard = tokenizer.guard([text])[1]
        assert tokenizer.encode_guarded(text, guard, max(1, len(ids))) == tokenizer.encode_guarded(text, guard)


def test_many_short_pieces_are_bounded_together(tokenizer):
    with pytest.raises(TooLongError):
        tokenizer.encode_guarded("<|im_start|>the world" * 99, "", 32)


def test_space_that_belongs_to_a_special_token_is_looked_at_once(vocabulary):
    from tokenizers import AddedToken, decoders, models
    from tokenizers import Tokenizer as Library

    library = Library(models.BPE({token: at for at, token in enumerate(vocabulary["tokens"])}, []))
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<a>", special=True, lstrip=True, rstrip=True)])
    splits = Tokenizer(library)._splits
    assert [found.span() for found in splits.finditer("x  <a> \n<a> y <a>")] == [(1, 8), (8, 12), (13, 17)]
    assert splits.search(" " * 300_000) is None  # minutes, when each space is looked at from each


def test_special_tokens_that_overlap_are_all_broken(vocabulary):
    from tokenizers import AddedToken, decoders, models
    from tokenizers import Tokenizer as Library

    library = Library(models.BPE({token: at for at, token in enumerate(vocabulary["tokens"])}, []))
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(text, special=True) for text in ("<a>", ">b<", "<a>b")])
    tokenizer = Tokenizer(library)
    ids = guarded(tokenizer, "<a>", "<a>b<a>b<", ">b<")
    assert [tokenizer.special[number] for number in ids if number in tokenizer.special] == ["<a>", ">b<"]


def test_a_text_of_code_points_that_are_none_keeps_them(tokenizer):
    text = "".join(chr(code) for code in range(0xFDD0, 0xFDEF)) + "<|im_end|>"
    ids = guarded(tokenizer, "", text, "")
    assert tokenizer.decode(ids) == text
    with pytest.raises(InvalidRequest, match="every code point") as caught:
        tokenizer.guard([text + "\ufdef"])
    assert caught.value.param == "messages"


def test_space_around_a_special_token_that_takes_it_is_left_out(vocabulary):
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    library = Library(models.BPE({token: at for at, token in enumerate(vocabulary["tokens"])}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<|end|>", special=True, rstrip=True)])
    tokenizer = Tokenizer(library)
    text = "a<|end|>\n b"
    assert tokenizer.encode_guarded(text, "\ufdd0") == library.encode(text).ids


def test_each_token_knows_its_bytes(tokenizer):
    ids = tokenizer.encode("the 中 😀\x00")
    assert b"".join(tokenizer.bytes_of(number) for number in ids) == "the 中 😀\x00".encode()
    assert tokenizer.bytes_of(1) == b""
    assert tokenizer.bytes_of(10_000_000) == b""


def test_a_vocabulary_of_word_marks_knows_its_bytes(tmp_path):
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models

    library = Library(models.BPE({"▁the": 0, "<0xE4>": 1, "x": 2}, []))
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = Tokenizer(library)
    assert [tokenizer.bytes_of(number) for number in range(3)] == [b" the", b"\xe4", b"x"]
    assert tokenizer.strips_first_space


def test_a_folder_without_a_usable_tokenizer_is_said_so(tmp_path):
    with pytest.raises(ConfigError, match="no tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokenizer.load(tmp_path)
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": words}))
    with pytest.raises(ConfigError, match="decoder null"):
        Tokenizer.load(tmp_path)


def in_pieces(tokenizer, text, rng):
    """The ids that were settled while it came in, and those at the end."""
    ids, held = [], ""
    while text:
        size = rng.randrange(1, 6)
        settled, held = tokenizer.settled(held + text[:size])
        ids, text = ids + settled, text[size:]
    return ids, tokenizer.encode_text(held)


@pytest.mark.parametrize("kind", ["words", "letters"])
def test_text_in_pieces_gives_the_ids_of_the_whole(kind, tokenizer, tmp_path):
    if kind == "letters":  # normalised, with words that are added and not special
        random_vocabulary.write(tmp_path, 0)
        tokenizer = Tokenizer.load(tmp_path)
    rng = random.Random(8)
    pool = [
        *POOL,
        "<think>",
        "</tool_call>",
        "e\u0301",
        "\u0323",
        "c\u0327",
        "\u1112",
        "\u1161",
        "\u11ab",
        "'ll",
        "7",
        "\r",
    ]
    for _ in range(600):
        text = "".join(rng.choice(pool) for _ in range(rng.randrange(0, 24)))
        settled, rest = in_pieces(tokenizer, text, rng)
        assert settled + rest == tokenizer.encode_text(text), text


def test_a_word_is_settled_when_the_next_one_begins(tokenizer):
    assert tokenizer.settled("hello") == ([], "hello")
    ids, rest = tokenizer.settled("hello world")
    assert (ids, rest) == (tokenizer.encode_text("hello"), " world")
    assert tokenizer.settled("hello ")[1] == " "
    assert tokenizer.settled("") == ([], "")
