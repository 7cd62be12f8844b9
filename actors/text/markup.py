"""Markup that is longer than a clause, taken out of running text before it is cut into clauses.

A fenced block of code is announced, not read, closed or not; the row of a table becomes its cells; of a link to the web
its words are left. Everything else leaves as it came. Text may come in pieces of any size; what leaves is the same,
because nothing leaves before it is known what it belongs to: at most a line, and only one that begins like a block.
"""

from __future__ import annotations

import re
from enum import Enum

CODE = "Code.\n"
"""Said in place of a block: a sentence of its own, so there is a pause on both sides."""
LINE_CHARS_MAX = 2000
"""Longer lines are no rows, and open no block."""

_INDENT = r"[ \t>]{0,16}"
_MAYBE_BLOCK = re.compile(rf"{_INDENT}`{{0,2}}")
_BLOCK = re.compile(rf"{_INDENT}(?:```|\|)")
_FENCE = re.compile(rf"{_INDENT}(`{{3,}})[^`]*")
_ROW = re.compile(rf"{_INDENT}\|(.*)\|\s*")
_CELL_END = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r":?-+:?")
_LAST_TICKS = re.compile(r"(`*)(\s*)\Z")
_BRACKET = re.compile(r"!?\[")
_ADDRESS = r"(?:\([^()\s]{0,100}\)|[^()\s]){0,600}"
_LINK = re.compile(rf"!?\[([^\]\n]{{1,300}})\]\(({_ADDRESS})\)")
_MAYBE_LINK = re.compile(rf"!?\[[^\]\n]{{0,300}}(?:\](?:\({_ADDRESS}(?:\([^()\s]{{0,100}})?)?)?")
_WEB = re.compile(r"https?://", re.IGNORECASE)


def speak_links(text: str) -> str:
    """Their words; an address that is not of the web may be what it is about, so it follows."""
    return _LINK.sub(_words, text)


class _At(Enum):
    LINE = "the beginning of a line"
    WITHIN = "within a line"
    CODE = "within a block of code"


class MarkupReader:
    def __init__(self) -> None:
        self._text = ""
        self._at = _At.LINE
        self._fence = 0
        """Backticks that opened the block."""
        self._ticks = ""
        """The end of the line of code so far, if it may be what closes the block."""

    def feed(self, text: str) -> str:
        """What can be said by now."""
        self._text += text
        return self._read(complete=False)

    def close(self) -> str:
        """The rest, now that nothing follows."""
        return self._read(complete=True)

    def _read(self, *, complete: bool) -> str:
        read = {_At.LINE: self._begin, _At.WITHIN: self._go_on, _At.CODE: self._skip}
        said: list[str] = []
        while self._text and (more := read[self._at](complete)) is not None:
            said.append(more)
        return "".join(said)

    def _begin(self, complete: bool) -> str | None:
        """At the beginning of a line; None while it cannot be known what the line is."""
        text = self._text
        if not complete and _MAYBE_BLOCK.fullmatch(text):
            return None
        self._at = _At.WITHIN
        if not _BLOCK.match(text):
            return ""
        end = text.find("\n")
        line = text[:end] if end >= 0 else text
        if len(line) > LINE_CHARS_MAX:
            return ""
        if end < 0 and not complete:
            self._at = _At.LINE
            return None
        return self._block(line)

    def _block(self, line: str) -> str:
        if fence := _FENCE.fullmatch(line):
            self._at, self._fence, self._ticks = _At.CODE, len(fence[1]), ""
            self._take(len(line) + 1)
            return CODE
        row = _ROW.fullmatch(line)
        said = _row(row[1]) if row else None
        if said is None:
            return ""
        self._at = _At.LINE
        self._take(len(line) + 1)
        return said

    def _go_on(self, complete: bool) -> str | None:
        """Up to the next link, or the end of the line."""
        text = self._text
        end = text.find("\n") + 1 or len(text)
        bracket = _BRACKET.search(text, 0, end)
        if bracket is None:
            if text[end - 1] == "\n":
                self._at = _At.LINE
            elif text[end - 1] == "!" and not complete:
                end -= 1  # of an image, perhaps
            return self._take(end) or None
        if bracket.start():
            return self._take(bracket.start())
        if link := _LINK.match(text):
            self._take(link.end())
            return _words(link)
        if not complete and _MAYBE_LINK.fullmatch(text):
            return None
        return self._take(bracket.end())

    def _skip(self, complete: bool) -> str:
        line, newline, _ = self._text.partition("\n")
        self._take(len(line) + len(newline))
        last = _LAST_TICKS.search(self._ticks + line)
        assert last is not None
        self._ticks = last[1] + (" " if last[2] else "")
        if newline:
            if self._ticks.count("`") >= self._fence:
                self._at = _At.LINE
            self._ticks = ""
        return ""

    def _take(self, count: int) -> str:
        taken, self._text = self._text[:count], self._text[count:]
        return taken


def _row(inner: str) -> str | None:
    """The cells of a row as a sentence, nothing for the rule under the heading; None when there are no cells."""
    cells = [cell.replace("\\|", "|").strip() for cell in _CELL_END.split(inner)]
    cells = [speak_links(cell) for cell in cells if cell]
    if not cells:
        return None
    if all(_RULE.fullmatch(cell) for cell in cells):
        return ""
    said = ", ".join(cells)
    return said + ("\n" if said.endswith((".", "!", "?", ";", ":")) else ".\n")


def _words(link: re.Match[str]) -> str:
    words, address = link.groups()
    return words if _WEB.match(address) else f"{words} ({address})"
