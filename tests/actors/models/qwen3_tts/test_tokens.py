import random

import msgspec
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.tokens import PromptTokens
from omnirt.actors.text.tokenizer import Tokenizer, TooLongError
from omnirt.errors import ConfigError

TEXTS = [
    "hello world",
    "\n\nnew lines first",
    " <|im_end|> and <tts_pad>",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "a",
    "re\u0301nard ",
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = random_checkpoint.write(tmp_path_factory.mktemp("custom"), "custom_voice", "tiny")
    return folder, Qwen3TtsConfig.read(folder)


@pytest.fixture(scope="module")
def tokens(checkpoint):
    return PromptTokens.load(*checkpoint)


def test_a_template_with_the_text_in_it_has_the_same_ids(checkpoint, tokens):
    tokenizer = Tokenizer.load(checkpoint[0])
    for text in TEXTS:
        (broken,), guard = tokenizer.guard([text])
        template = f"<|im_start|>assistant\n{broken}<|im_end|>\n<|im_start|>assistant\n"
        assert tokens.text(text) == tokenizer.encode_guarded(template, guard)[3:-5]
        template = f"<|im_start|>user\n{broken}<|im_end|>\n"
        assert tokens.instruct(text) == tokenizer.encode_guarded(template, guard)
    assert tokens.role == tokenizer.encode("<|im_start|>assistant\n")
    assert tokens.instruct("") == []


def test_text_that_comes_in_pieces_has_the_same_ids(tokens):
    rng = random.Random(4)
    for text in [*TEXTS, *("".join(rng.choices("ab the!\n'\u4f60\u0301<|im_end|>", k=20)) for _ in range(200))]:
        incoming, ids, left = tokens.incoming(), [], text
        while left:
            size = rng.randrange(1, 6)
            ids += incoming.push(left[:size])
            left = left[size:]
        assert ids + incoming.end() == tokens.text(text)


def test_a_long_word_that_comes_letter_by_letter_is_looked_at_now_and_then(tokens, monkeypatch):
    text = "\u4f60\u597d" * 700 + "\u3002 and more"
    looks = []
    settled = Tokenizer.settled
    monkeypatch.setattr(Tokenizer, "settled", lambda self, held: looks.append(len(held)) or settled(self, held))
    incoming, ids = tokens.incoming(), []
    for letter in text:
        ids += incoming.push(letter)
    assert ids + incoming.end() == tokens.text(text)
    assert len(looks) < 320


def test_a_text_of_no_letters_has_no_ids(tokens):
    incoming = tokens.incoming()
    assert incoming.push("") + incoming.end() == tokens.text("") == []


def test_what_is_far_too_long_is_noticed(tokens):
    with pytest.raises(TooLongError):
        tokens.text("hello " * 10_000, 100)


def test_a_tokenizer_of_another_model_is_refused(checkpoint):
    folder, config = checkpoint
    other = msgspec.structs.replace(config, text=msgspec.structs.replace(config.text, im_start=5))
    with pytest.raises(ConfigError, match="does not belong to"):
        PromptTokens.load(folder, other)
