"""Byte-level BPE from vocab.json, merges.txt and the added tokens of tokenizer_config.json, for checkpoints that ship
no tokenizer.json (Qwen2's way of splitting text; other classes are refused).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omnirt.errors import ConfigError

CLASSES = ("Qwen2Tokenizer", "Qwen2TokenizerFast")
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # short forms
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"  # letters, with what stands before them
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"  # signs
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def from_vocabulary(folder: Path) -> Any:
    """A `tokenizers.Tokenizer`. Raises ConfigError, or what the library raises."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    config = _config(folder)
    kind = config.get("tokenizer_class") or CLASSES[0]
    if kind not in CLASSES:
        raise ConfigError(f"{folder} holds no tokenizer.json, and tokenizer_class {kind} cannot be made without")
    if not (folder / "merges.txt").is_file():
        raise ConfigError(f"{folder} holds vocab.json, and no merges.txt")
    library = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    library.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(tokenizers.Regex(_SPLIT), "isolated")
    prefix = bool(config.get("add_prefix_space") or False)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([split, letters])
    library.decoder = decoders.ByteLevel()
    for number, token in _added(config):
        library.add_tokens([token])
        given = library.token_to_id(token.content)
        if number is not None and given != number:
            raise ConfigError(f"{folder}: the added token {token.content!r} is to be {number} and would be {given}")
    return library


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from None
    return config if isinstance(config, dict) else {}


def _added(config: Mapping[str, Any]) -> Iterator[tuple[int | None, Any]]:
    """Added tokens in the order of their ids, then special ones that are named without an id."""
    from tokenizers import AddedToken

    table = config.get("added_tokens_decoder") or {}
    for number, raw in sorted((int(key), raw) for key, raw in table.items()):
        flags = {key: bool(raw.get(key, False)) for key in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        yield number, AddedToken(raw["content"], **flags)
    known = {raw["content"] for raw in table.values()}
    named = [config.get(key) for key in _NAMED] + list(config.get("additional_special_tokens") or [])
    for entry in named:
        content = entry.get("content") if isinstance(entry, dict) else entry
        if content and content not in known:
            known.add(content)
            yield None, AddedToken(content, special=True, normalized=False)
