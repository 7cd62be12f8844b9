"""Addresses of the net, spelled: e-mail, URLs, host and file names, IP addresses and version numbers."""

from __future__ import annotations

import re

from omnirt.actors.text.spoken_numbers import digits, number

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"\b(https?|ftp|wss?|file)://([^\s<>\"()]+)|\bwww\.[^\s<>\"()]+", re.IGNORECASE)
_HOST = re.compile(
    r"(?<![\w@.])(?:[A-Za-z0-9-]+\.)+(?:com|org|net|edu|gov|io|ai|dev|co|uk|de|app)(?::\d+)?(?:/[^\s()]*)?"
)
_VERSION = re.compile(r"(?<![\w.])(v(?:er\.?\s?)?)?(\d+(?:\.\d+){2,})(?::(\d+))?", re.IGNORECASE)
_VERSION_SHORT = re.compile(r"(?<![\w.])v\.?(\d+(?:\.\d+)?)(?![\w.]*\d)", re.IGNORECASE)
_NAME_DOT = re.compile(r"(?<=[A-Za-z0-9])\.(?=[a-z]\w)")
_MISSING_SPACE = re.compile(r"(?<=[a-z])([.!?])(?=[A-Z][a-z])")
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\w\s]|_")
_SPOKEN = {
    ".": "dot",
    "@": "at",
    "/": "slash",
    "-": "dash",
    "_": "underscore",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "+": "plus",
    "~": "tilde",
    ",": "comma",
    ";": "semicolon",
    "!": "exclamation mark",
    "'": "apostrophe",
    "*": "asterisk",
    "$": "dollar",
    "|": "pipe",
    "\\": "backslash",
    "^": "caret",
}
_SPELLED = frozenset({"www", "http", "https", "ftp", "ws", "wss", "html", "php", "uk", "io", "ai", "js", "css", "pdf"})


def spell_addresses(text: str) -> str:
    text = _EMAIL.sub(_address, text)
    text = _URL.sub(_address, text)
    text = _HOST.sub(_address, text)
    text = _VERSION.sub(_version, text)
    text = _VERSION_SHORT.sub(lambda match: f"version {number(match[1])}", text)
    text = _MISSING_SPACE.sub(r"\1 ", text)
    return _NAME_DOT.sub(" dot ", text)


def _address(match: re.Match[str]) -> str:
    address = match[0]
    kept = address.rstrip(".,;:!?'")
    after = address[len(kept) :]
    scheme, separator, rest = kept.partition("://")
    words = f"{_letters(scheme)}, {_pieces(rest)}" if separator else _pieces(kept)
    return words + after


def _pieces(text: str) -> str:
    return " ".join(_piece(piece) for piece in _PIECE.findall(text))


def _piece(piece: str) -> str:
    if piece.isdecimal():
        return number(piece) if len(piece) <= 2 else digits(piece)
    if piece.isalpha():
        return _letters(piece) if piece.lower() in _SPELLED or len(piece) == 1 else piece
    return _SPOKEN.get(piece, piece)


def _letters(word: str) -> str:
    return " ".join(word.upper())


def _version(match: re.Match[str]) -> str:
    """Four parts below 256 are an IP address ("dot"), anything else with two dots or more a version ("point")."""
    parts = match[2].split(".")
    is_address = not match[1] and len(parts) == 4 and all(len(part) <= 3 and int(part) < 256 for part in parts)
    joiner = " dot " if is_address else " point "
    words = joiner.join(number(part) for part in parts)
    if match[3]:
        words += f" colon {_piece(match[3])}"
    return f"version {words}" if match[1] else words
