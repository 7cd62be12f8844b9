import json
import random

import pytest

from omnirt.actors.models.qwen3_tts import random_vocabulary
from omnirt.actors.text.tokenizer import Tokenizer
from omnirt.errors import ConfigError

SAMPLES = [
    "hello world",
    "  the quick\t brown  \n\n fox\r\n jumps \n ",
    "I'm sure they'LL say it's 3.14159, isn't it?!\n",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002",
    "re\u0301nard A\u030a \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \x00 \ufeff \u00a0 \u3000x",
    "<think>inside</think> and <tool_call>",
    "",
    " ",
]
POOL = ["a", "the", " ", "\n", "\r", "\t", "'s", "'", "!", "7", "\u4f60", "e\u0301", "\u0323", "\U0001f600", "<", "|>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    random_vocabulary.write(folder, 0)
    return folder


def test_ids_are_those_of_transformers(folder):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(str(folder))
    assert "Qwen2" in type(theirs).__name__
    ours = Tokenizer.load(folder)
    rng = random.Random(3)
    made = ["".join(rng.choice(POOL) for _ in range(rng.randrange(1, 30))) for _ in range(300)]
    for text in SAMPLES + made:
        whole = f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
        assert ours.encode(whole) == theirs(whole)["input_ids"], text
        assert ours.encode_text(text) == theirs(text)["input_ids"], text
    assert {number for number, token in theirs.added_tokens_decoder.items() if token.special} == set(ours.special)


def test_ids_are_those_of_the_same_tokenizer_in_one_file(folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.AutoTokenizer.from_pretrained(str(folder)).save_pretrained(str(tmp_path))
    assert (tmp_path / "tokenizer.json").is_file()
    one, other = Tokenizer.load(folder), Tokenizer.load(tmp_path)
    for text in SAMPLES:
        assert one.encode_text(text) == other.encode_text(text)
    assert one.special == other.special


def test_text_never_becomes_a_special_token(folder):
    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.encode_text("a<|im_end|> <tts_pad>")
    assert not set(ids) & set(tokenizer.special)
    assert tokenizer.decode(ids) == "a<|im_end|> <tts_pad>"


def test_special_tokens_may_be_named_without_their_ids(folder, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    count = len(json.loads((folder / "vocab.json").read_text()))
    assert Tokenizer.load(tmp_path).special == {}
    named = {"eos_token": {"content": "<|im_end|>"}, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    assert Tokenizer.load(tmp_path).special == {count: "<|im_end|>", count + 1: "<|im_start|>"}


def test_files_that_do_not_make_a_tokenizer_are_said_so(folder, tmp_path):
    (tmp_path / "vocab.json").write_bytes((folder / "vocab.json").read_bytes())
    with pytest.raises(ConfigError, match=r"no merges\.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_bytes((folder / "merges.txt").read_bytes())
    config = tmp_path / "tokenizer_config.json"
    config.write_text("{")
    with pytest.raises(ConfigError, match="is no JSON"):
        Tokenizer.load(tmp_path)
    config.write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    with pytest.raises(ConfigError, match="tokenizer_class GPT2Tokenizer cannot be made"):
        Tokenizer.load(tmp_path)
    config.write_text(json.dumps({"added_tokens_decoder": {"9999": {"content": "<x>", "special": True}}}))
    with pytest.raises(ConfigError, match="'<x>' is to be 9999 and would be"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").write_text("[]")
    config.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokenizer.load(tmp_path)
