import random

import pytest

from omnirt.actors.text.answer import Answer
from omnirt.actors.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer.load(tokenizer_folder)


def run(tokenizer, ids, stops=(), min_tokens=0, logprobs=False):
    """What left after each token, and at the end."""
    answer = Answer(tokenizer, stops, min_tokens)
    leaving = []
    for at, number in enumerate(ids):
        leaving.append(answer.add(number, -float(at) if logprobs else None))
        if answer.stopped:
            break
    leaving.append(answer.close())
    return leaving, answer


def texts(leaving):
    return [text.text if text else "" for text in leaving]


def test_text_leaves_token_by_token(tokenizer):
    ids = tokenizer.encode("hello world and the")
    leaving, answer = run(tokenizer, ids)
    assert texts(leaving) == ["hello", " world", " and", " the", ""]
    assert leaving[-1] is None
    assert not answer.stopped


def test_a_stop_string_ends_the_answer_before_it(tokenizer):
    leaving, answer = run(tokenizer, tokenizer.encode("hello STOP world"), ["STOP"])
    assert "".join(texts(leaving)) == "hello "
    assert answer.stopped


def test_stop_strings_do_not_count_before_enough_tokens(tokenizer):
    ids = tokenizer.encode("the the the the")
    leaving, answer = run(tokenizer, ids, [" the"], min_tokens=2)
    assert "".join(texts(leaving)) == "the the"
    assert answer.stopped


def test_a_log_probability_leaves_with_the_last_character_of_its_token(tokenizer):
    ids = tokenizer.encode("hello the")
    leaving, _ = run(tokenizer, ids, ["the!"], logprobs=True)
    assert [[entry.token for entry in text.logprobs] for text in leaving if text] == [["hello"], [], [" the"]]
    assert texts(leaving) == ["hello", " ", "the"]


def test_no_log_probability_of_a_token_of_which_nothing_leaves(tokenizer):
    ids = tokenizer.encode("hello\n\n world")
    leaving, _ = run(tokenizer, ids, ["\n\n"], logprobs=True)
    assert [entry.token for text in leaving if text for entry in text.logprobs] == ["hello"]
    leaving, _ = run(tokenizer, [*ids[:1], 1, 2], logprobs=True)
    assert [entry.token for text in leaving if text for entry in text.logprobs] == ["hello"]


def test_tokens_of_one_character_leave_together_with_their_bytes(tokenizer):
    parts = [next(n for n in range(3, 259) if tokenizer.bytes_of(n) == bytes([code])) for code in "é".encode()]
    leaving, _ = run(tokenizer, parts, logprobs=True)
    assert leaving[0] is None
    assert leaving[1].text == "é"
    assert [entry.raw for entry in leaving[1].logprobs] == [b"\xc3", b"\xa9"]
    assert [entry.logprob for entry in leaving[1].logprobs] == [0.0, -1.0]


def test_likeliest_tokens_are_spelled_out_special_ones_too(tokenizer):
    answer = Answer(tokenizer)
    (number,) = tokenizer.encode("hello")
    text = answer.add(number, -0.5, [(number, -0.5), (2, -1.5)])
    (entry,) = text.logprobs
    assert [(other.token, other.raw, other.logprob) for other in entry.top] == [
        ("hello", b"hello", -0.5),
        ("<|im_end|>", b"<|im_end|>", -1.5),
    ]


def test_log_probabilities_are_those_of_the_text_whatever_the_tokens(tokenizer):
    rng = random.Random(9)
    for _ in range(500):
        ids = [rng.randrange(0, 300) for _ in range(rng.randrange(1, 20))]
        leaving, answer = run(tokenizer, ids, ["ab", " "], logprobs=True)
        raw = b"".join(entry.raw for text in leaving if text for entry in text.logprobs).decode(errors="replace")
        text = "".join(texts(leaving))
        assert raw.startswith(text), ids
        assert answer.stopped or raw == text
