"""tokenizer.json and tokenizer_config.json from the vocabulary in a GGUF file's metadata (byte-level BPE)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnirt.actors.models.gguf.metadata import CONTROL, UNUSED, USER_DEFINED, Metadata
from omnirt.errors import ConfigError

_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _LETTERS + r"|\p{N}{1,3}" + _REST
_QWEN2 = _LETTERS + r"|\p{N}" + _REST

# How text is cut before merging, by the file's name for it. The patterns are part of what a model was trained with.
_SPLITS = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3, "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2}
_GPT2 = {"default", "gpt-2"}
_DIGITS = {"smollm"}
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def tokenizer_config(metadata: Metadata) -> dict[str, Any]:
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, role in _ROLES.items():
        number = metadata.token_id(role)
        if number is not None:
            config[name] = metadata.tokens[number]
    config["add_bos_token"] = metadata.get("tokenizer.ggml.add_bos_token", False)
    config["model_max_length"] = metadata.arch("context_length", int)
    template = metadata.get("tokenizer.chat_template", "")
    if template:
        config["chat_template"] = template
    return config


def write_tokenizer(metadata: Metadata, path: Path) -> None:
    """Raises ConfigError for another kind of vocabulary, or a way of cutting text that is not known."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    kind = metadata.need("tokenizer.ggml.model", str)
    if kind != "gpt2":
        raise ConfigError(f"{metadata.name} has a vocabulary of kind {kind!r}; read is byte-level BPE ('gpt2')")
    cut = metadata.get("tokenizer.ggml.pre", "default")
    merges = [_pair(merge) for merge in metadata.need("tokenizer.ggml.merges", list)]
    vocabulary, added = _vocabulary(metadata)
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=_SPLITS.get(cut) is _LLAMA3)
    except Exception as error:  # the library raises this very class
        raise ConfigError(f"{metadata.name} has a vocabulary that does not hold together: {error}") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer(metadata.name, cut)
    if _SPLITS.get(cut) is _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, special=special, normalized=False) for text, special in added])
    tokenizer.post_processor = _post_processor(metadata)
    tokenizer.save(str(path))


def _vocabulary(metadata: Metadata) -> tuple[dict[str, int], list[tuple[str, bool]]]:
    """All tokens but unused ones, and those that are found in text as a whole: (text, whether it is special)."""
    vocabulary: dict[str, int] = {}
    added: list[tuple[str, bool]] = []
    for number, (token, kind) in enumerate(zip(metadata.tokens, metadata.token_kinds, strict=True)):
        if kind == UNUSED:
            continue
        vocabulary[token] = number
        if kind in (CONTROL, USER_DEFINED):
            added.append((token, kind == CONTROL))
    return vocabulary, added


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _pre_tokenizer(name: str, cut: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if cut in _GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut in _DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if cut not in _SPLITS:
        known = ", ".join(sorted({*_GPT2, *_DIGITS, *_SPLITS}))
        raise ConfigError(f"{name} cuts text in a way that is not known, {cut!r}; known: {known}")
    split = pre_tokenizers.Split(Regex(_SPLITS[cut]), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _post_processor(metadata: Metadata) -> Any:
    """A prompt begins with the model's beginning token where the file says so."""
    from tokenizers import processors

    bos = metadata.token_id("bos")
    if bos is None or not metadata.get("tokenizer.ggml.add_bos_token", False):
        return processors.ByteLevel(trim_offsets=False)
    token = metadata.tokens[bos]
    return processors.TemplateProcessing(single=f"{token} $A", special_tokens=[(token, bos)])
