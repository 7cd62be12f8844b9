import json

import pytest

from omnirt.actors.models.gguf.vocabulary import tokenizer_config, write_tokenizer
from omnirt.errors import ConfigError


@pytest.fixture
def tokenizer_of(metadata_of, tmp_path):
    def build(change=lambda file: None):
        from tokenizers import Tokenizer

        write_tokenizer(metadata_of(change), tmp_path / "tokenizer.json")
        return Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    return build


def pieces(tokenizer, text):
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def test_it_is_the_tokenizer_of_the_vocabulary(tokenizer_of, tokenizer_folder):
    from tokenizers import Tokenizer

    expected = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    found = tokenizer_of()
    for text in ("hello world", "<|im_start|>user\nthe 😀<|im_end|>", " é\n\n'll 12", ""):
        assert found.encode(text).ids == expected.encode(text).ids
        assert found.decode(found.encode(text).ids) == expected.decode(expected.encode(text).ids)


def test_text_is_cut_as_the_model_was_trained(tokenizer_of):
    for pre, expected in {
        "default": ["It", "'s", "Ġ2024", "!!", "ĠOK"],
        "smollm": ["It", "'s", "Ġ", "2", "0", "2", "4", "!!", "ĠOK"],
        "llama-bpe": ["It", "'s", "Ġ", "202", "4", "!!", "ĠOK"],
        "qwen2": ["It", "'s", "Ġ", "2", "0", "2", "4", "!!", "ĠOK"],
    }.items():
        assert pieces(tokenizer_of(lambda file, pre=pre: setattr(file, "pre", pre)), "It's 2024!! OK") == expected, pre


def test_a_way_of_cutting_or_a_vocabulary_that_is_not_known_is_named(tokenizer_of):
    with pytest.raises(ConfigError, match=r"a way that is not known, 'tekken'; known: .*smollm"):
        tokenizer_of(lambda file: setattr(file, "pre", "tekken"))
    with pytest.raises(ConfigError, match="a vocabulary of kind 'llama'"):
        tokenizer_of(lambda file: setattr(file, "model", "llama"))


def test_merges_of_tokens_that_are_not_there_are_said_so(tokenizer_of, vocabulary):
    with pytest.raises(ConfigError, match=r"does not hold together: .*STOP"):
        tokenizer_of(lambda file: file.kinds.__setitem__(vocabulary["tokens"].index("STOP"), 5))


def test_tokens_that_users_define_are_whole_but_not_special(tokenizer_of, vocabulary):
    number, unused = vocabulary["tokens"].index("STOP"), vocabulary["tokens"].index("\u00ff")

    def change(file):
        file.kinds[number] = 4
        file.kinds[unused] = 5

    tokenizer = tokenizer_of(change)
    assert tokenizer.encode("xSTOPx").ids[1] == number
    assert tokenizer.decode([number]) == "STOP"
    assert tokenizer.id_to_token(unused) is None


def test_a_prompt_begins_with_the_beginning_token_where_the_file_says_so(tokenizer_of):
    tokenizer = tokenizer_of(lambda file: setattr(file, "add_bos", True))
    assert tokenizer.encode("the").ids[0] == 1
    assert tokenizer.encode("the", add_special_tokens=False).ids[0] != 1


def test_the_template_and_the_special_tokens_are_in_the_config(metadata_of, vocabulary):
    config = json.loads(json.dumps(tokenizer_config(metadata_of())))
    assert config["chat_template"] == vocabulary["template"]
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "pad_token" not in config
    assert "chat_template" not in tokenizer_config(metadata_of(lambda file: setattr(file, "template", "")))
