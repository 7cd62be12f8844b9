"""What tests of language stages share: a checkpoint's tokenizer, small and made here."""

import json

import pytest

TEMPLATE = (
    "{% for message in messages %}{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('there is no role ' + message['role']) }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = [" the", "the", "user", "assistant", "system", " is", " Paris", "hello", " world", " and", "STOP", "\n\n", "😀"]


def byte_letters():
    """How a byte-level vocabulary writes each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [code for code in range(256) if code not in plain]
    return {code: chr(code) for code in plain} | {code: chr(256 + at) for at, code in enumerate(rest)}


def byte_level_bpe(words, special):
    """Vocabulary and merges that make each of `words` one token."""
    letters = byte_letters()
    tokens, merges = [*special, *(letters[code] for code in range(256))], []
    for word in words:
        parts = [letters[code] for code in word.encode()]
        whole = parts[0]
        for part in parts[1:]:
            if (whole, part) not in merges:
                merges.append((whole, part))
            whole += part
            if whole not in tokens:
                tokens.append(whole)
    return tokens, merges


@pytest.fixture(scope="session")
def vocabulary():
    """Tokens in the order of their ids, merges, special tokens (the first ids), and a chat template."""
    tokens, merges = byte_level_bpe(WORDS, SPECIAL)
    return {"tokens": tokens, "merges": merges, "special": SPECIAL, "template": TEMPLATE}


@pytest.fixture(scope="session")
def tokenizer_folder(vocabulary, tmp_path_factory):
    """A checkpoint without its weights."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("tokenizer")
    library = Tokenizer(models.BPE({token: at for at, token in enumerate(vocabulary["tokens"])}, vocabulary["merges"]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in vocabulary["special"]])
    library.save(str(folder / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
