"""A small byte-level BPE in the files that checkpoints ship, learnt here from a page of text; the same every time."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

ADDED = [
    *(f"<|{name}|>" for name in ("endoftext", "im_start", "im_end")),
    *(f"<|{name}_{end}|>" for name in ("object_ref", "box", "quad", "vision") for end in ("start", "end")),
    *(f"<|{name}|>" for name in ("vision_pad", "image_pad", "video_pad")),
    *("<tool_call>", "</tool_call>"),
    *(f"<|{name}|>" for name in ("fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep")),
    *("<tool_response>", "</tool_response>", "<think>", "</think>", "<|audio_start|>", "<|audio_end|>"),
    *("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"),
]
"""In the order of their ids."""
_PLAIN = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
_TEXT = """
the quick brown fox jumps over the lazy dog while the other dog is watching from the house and nothing else happens
hello world this is a short text that is to be spoken in a calm and friendly voice with a little bit of joy please
one two three four five six seven eight nine ten of the things that they have been thinking about for a long time
der schnelle braune Fuchs springt heute nicht und das ist auch gut so wie es ist in diesem Haus mit einer Frau
le renard et la maison dans la rue avec les enfants qui ne sont pas ici mais sont partis pour toujours
el zorro y la casa de los que no han estado en la calle por la noche con una luz en la mano
\u4f60\u597d \u4e16\u754c \u4eca\u5929 \u5929\u6c14 \u5f88\u597d \u6211\u4eec \u4e00\u8d77 \u53bb
"""
_MERGES = 320
_TEMPLATE = ("assistant", "user", "system")


def write(folder: Path, first_added: int) -> dict[str, int]:
    """vocab.json, merges.txt and tokenizer_config.json. `first_added`: the id of the first added token; 0: the next
    one. Gives the ids of the added tokens, and of `assistant`."""
    tokens, merges = _learn()
    tokens += [f"unused{at}" for at in range(len(tokens), first_added)]  # what no merge leads to
    vocabulary = {token: at for at, token in enumerate(tokens)}
    added = {token: len(tokens) + at for at, token in enumerate(ADDED)}
    table = {str(number): _flags(token) for token, number in added.items()}
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": table,
        "additional_special_tokens": [token for token in ADDED[1:] if token not in _PLAIN],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 131_072,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return added | {"assistant": vocabulary["assistant"]}


def _flags(token: str) -> dict[str, object]:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": token, **plain, "special": token not in _PLAIN}


def _learn() -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens in the order of their ids, and the merges that make them."""
    letters = _byte_letters()
    counts = Counter(word for line in _TEXT.split("\n") for word in _words(line))
    counts.update(dict.fromkeys(_TEMPLATE, 1000))
    words = {tuple(letters[code] for code in word.encode()): count for word, count in sorted(counts.items())}
    tokens, merges = [letters[code] for code in range(256)], []
    while len(merges) < _MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        pair, _ = max(pairs.items(), key=lambda item: (item[1], item[0]))
        merges.append(pair)
        tokens += [token for token in ["".join(pair)] if token not in tokens]  # two ways may lead to one
        words = {_merged(word, pair): count for word, count in words.items()}
    return tokens, merges


def _words(line: str) -> list[str]:
    words = line.split()
    return [*words[:1], *(f" {word}" for word in words)]


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    for part in word:
        if found and (found[-1], part) == pair:
            found[-1] += part
        else:
            found.append(part)
    return tuple(found)


def _byte_letters() -> dict[int, str]:
    """How a byte-level vocabulary writes each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [code for code in range(256) if code not in plain]
    return {code: chr(code) for code in plain} | {code: chr(256 + at) for at, code in enumerate(rest)}
