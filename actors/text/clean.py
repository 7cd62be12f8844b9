"""Characters first: one spelling for each kind of quote, dash, space and digit, and no markup.

What is removed is invisible (zero-width marks) or only says how text looks (emphasis, heading marks; of a drawn line a
comma stays). Of three or more of the same sign one is left, and accents are part of their letter however they were
typed. Everything else is still there afterwards, in ASCII where ASCII has it.
"""

from __future__ import annotations

import re
import unicodedata

from omnirt.actors.text.markup import speak_links

_CHARS = {
    **dict.fromkeys("\u2018\u2019\u201b\u2032\u02bc\uff07", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\uff02", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u2014\u2015\u2e3a", "\u2014"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0e\ufe0f", ""),
    **dict.fromkeys("[{\uff3b\u3010", "("),
    **dict.fromkeys("]}\uff3d\u3011", ")"),
    **dict.fromkeys("\u00a1\u00bf", ""),
    **dict.fromkeys("\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff", ""),
    "\u2026": "...",
    "\u3002": ". ",
    "\u3001": ", ",
    "\u2044": "/",
}
_TABLE = str.maketrans(_CHARS)
_VULGAR = re.compile(r"(\d)?([\u00bc-\u00be\u2150-\u215e])")
_LOWERED = re.compile(r"(?<=[A-Za-z])[\u2080-\u2089]+")
"""Behind a letter, as in H\u2082O: part of the word."""
_MARKUP = (
    (re.compile(r"(?m)^\s{0,3}#{1,6}\s+"), ""),
    (re.compile(r"(?m)^\s*[-*+\u2022]\s+"), ""),
    (re.compile(r"(?m)^\s*>\s+"), ""),
    (re.compile(r"`+([^`]*)`+"), r"\1"),
    (re.compile(r"(\*{1,3})(?=\S)([^*]+?)(?<=\S)\1"), r"\2"),
    (re.compile(r"~~([^~]+)~~"), r"\1"),
    (re.compile(r"(?<!\w)(_{1,2})(?=\S)([^_]+?)(?<=\S)\1(?!\w)"), r"\2"),
)
_DRAWN = re.compile(r"(?m)^[ \t]*([-=_*~#+\u2022])(?:[ \t]*\1){2,}[ \t]*$|([=_*~#+\u2022])\2{3,}|[\u2500-\u259f]{2,}")
"""Rules, underlinings, blanks to fill in, boxes: a pause."""
_REPEATED = re.compile(r"([^\w\s.,;:!?'\"()\[\]{}-])\1{2,}")


def clean(text: str) -> str:
    """The text on one line, in plain characters."""
    text = unicodedata.normalize("NFC", text)
    text = _REPEATED.sub(r"\1", _DRAWN.sub(", ", text))
    text = speak_links(text)
    for pattern, kept in _MARKUP:
        text = pattern.sub(kept, text)
    text = _LOWERED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    text = _VULGAR.sub(_vulgar, text).translate(_TABLE)
    text = "".join(_plain(char) for char in text)
    return " ".join(text.split())


def _vulgar(match: re.Match[str]) -> str:
    """A fraction in one character, after a digit or alone: "2\u00bd" -> "2 1/2"."""
    parts = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    return f"{match[1]} {parts}" if match[1] else parts


def _plain(char: str) -> str:
    if char < "\u0080":
        return char if char.isprintable() else " "
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if unicodedata.category(char) in ("Cc", "Cf", "Co", "Cn", "Cs", "Mn", "Me"):
        return " " if char.isspace() else ""
    if char in "\u00b2\u00b3\u00b5\u2122\u00aa\u00ba":
        return char  # spoken as words later
    folded = unicodedata.normalize("NFKC", char)
    if folded != char and folded.isascii():
        return f" {folded} " if char.isnumeric() else folded
    return char
