"""Cuts running text into clauses that can be spoken one after the other, as soon as each is known.

Text may come in pieces of any size; the clauses are the same whatever the pieces were. For that every decision looks
only at the text up to the end of the next word, and waits until that word is complete (or the text is).

    "Dr. Smith paid $1,234.56 on Oct. 5, 2024. Then he left, because it rained."
                                             ^ sentence    ^ clause (long enough?)

The first clause may be short, so that sound starts early; later ones are longer, which sounds better. A number, an
abbreviation or a date is never cut.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from omnirt.actors.text.words import ABBREVIATIONS, BEFORE_NUMBERS, TITLES


class Pause(Enum):
    """The break that follows a clause."""

    NONE = "none"
    COMMA = "comma"
    SENTENCE = "sentence"
    PARAGRAPH = "paragraph"


class Clause(NamedTuple):
    text: str
    pause: Pause


class Lengths(NamedTuple):
    """In characters. A comma ends a clause of `comma_min`; a clause without any mark is cut near `target` when no mark
    comes before `limit`."""

    comma_min: int
    target: int
    limit: int


FIRST = Lengths(comma_min=14, target=60, limit=96)
LATER = Lengths(comma_min=100, target=160, limit=220)
WORD_CHARS_MAX = 160
"""Longer runs without a space are cut: they are no words."""

_WORD = re.compile(r"\S+")
_OPENERS = "\"'([{*_`\u201c\u2018\u00ab"
_CLOSERS = "\"')]}*_`\u201d\u2019\u00bb"
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+$")
_MARKER = re.compile(r"\(?(?:\d{1,3}|[A-Za-z])[.)]$")
_NEVER_LAST = frozenset(f"{title}." for title in TITLES if title != "St") | (frozenset(BEFORE_NUMBERS) - {"no."})
_SOMETIMES_LAST = (frozenset(ABBREVIATIONS) | {"St.", "no."}) - {"w/", "w/o", "vs"}
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)"
_MONTHS = re.compile(rf"{_MONTH}\.$")
_MONTH_NAMES = re.compile(rf"{_MONTH}[a-z]*\.?$")
_STARTERS = re.compile(
    r"(?:The|An?|It|He|She|We|They|I|You|This|That|These|Those|There|In|On|At|But|And|So|If|When|While|After|Before"
    r"|However|Then|His|Her|Its|Our|Their|My|For|As|What|Who|Why|How|Where|Is|Are|Do|Does|Did|Not|No|Yes)\b"
)
"""After an abbreviation that may or may not end a sentence, these say that it did."""
_JOINTS = re.compile(
    r"(?:and|but|or|nor|so|yet|because|although|though|when|where|which|who|that|if|unless|until|since|as|than|then"
    r"|while|after|before|with|without|for|from|to|into|onto|of|in|on|at|by|over|under|between|through|during|about)$",
    re.IGNORECASE,
)
"""A clause without marks is cut before one of these."""
_WANTING = re.compile(
    r"(?:the|an?|my|your|his|her|its|our|their|this|these|those|very|is|are|was|were)$", re.IGNORECASE
)


class ClauseSplitter:
    def __init__(self, first: Lengths = FIRST, later: Lengths = LATER) -> None:
        self._lengths = first
        self._later = later
        self._text = ""

    def feed(self, text: str) -> list[Clause]:
        """The clauses that are certain by now."""
        self._text += text
        return self._cut(complete=False)

    def close(self) -> list[Clause]:
        """What is left, now that nothing follows."""
        clauses = self._cut(complete=True)
        rest, self._text = self._text.strip(), ""
        return [*clauses, Clause(rest, Pause.SENTENCE)] if rest else clauses

    def _cut(self, *, complete: bool) -> list[Clause]:
        clauses: list[Clause] = []
        start = 0
        while (found := _first_clause(self._text, start, self._lengths, complete=complete)) is not None:
            end, pause = found
            clauses.append(Clause(self._text[start:end].strip(), pause))
            self._lengths = self._later
            start = end
        self._text = self._text[start:]
        return clauses


def _first_clause(text: str, start: int, lengths: Lengths, *, complete: bool) -> tuple[int, Pause] | None:
    """Where the clause that begins at `start` ends, or None while that cannot be known."""
    words: list[re.Match[str]] = []
    for word in _WORD.finditer(text, start):
        if word.end() - word.start() > WORD_CHARS_MAX:
            return _inside(text, word, words)
        if word.end() == len(text) and not complete:
            return None
        if words:
            pause = _pause_between(text, words, word, lengths)
            if pause is not None:
                return words[-1].end(), pause
            if word.end() - words[0].start() > lengths.limit:
                return _without_mark(words, lengths)
        words.append(word)
    return None


def _inside(text: str, word: re.Match[str], before: list[re.Match[str]]) -> tuple[int, Pause]:
    """An endless word is cut: in front, when something else comes first, or by force."""
    if before:
        return before[-1].end(), Pause.NONE
    return word.start() + WORD_CHARS_MAX, Pause.NONE


def _pause_between(text: str, words: list[re.Match[str]], after: re.Match[str], lengths: Lengths) -> Pause | None:
    """Whether the clause `words` ends before the word `after`."""
    last = words[-1]
    lines = text.count("\n", last.end(), after.start())
    following = after[0].lstrip(_OPENERS)
    if lines > 1:
        return Pause.PARAGRAPH
    if lines and (not following[:1].islower()):
        return Pause.SENTENCE
    mark = last[0].rstrip(_CLOSERS)
    if mark.endswith((".", "!", "?", "\u2026", "\u3002", "\uff01", "\uff1f")) and _ends_sentence(
        words, mark, following
    ):
        return Pause.SENTENCE
    if last.end() - words[0].start() >= lengths.comma_min and _ends_clause(words, mark, following):
        return Pause.COMMA
    return None


def _ends_sentence(words: list[re.Match[str]], mark: str, following: str) -> bool:
    if following[:1].islower():
        return False
    if not mark.endswith(".") or mark.endswith(".."):
        return True
    if len(words) == 1 and _MARKER.match(mark):
        return False  # "1. Wash the rice": the number of a list
    bare = mark.lstrip(_OPENERS)
    if bare in _NEVER_LAST or (_MONTHS.match(bare) and following[:1].isdigit()):
        return False
    if bare in _SOMETIMES_LAST or _DOTTED.match(bare):
        return _STARTERS.match(following) is not None
    return True


def _ends_clause(words: list[re.Match[str]], mark: str, following: str) -> bool:
    if mark.endswith((";", ":", "\u2014", "\u2013")) or mark in ("-", "--") or words[-1][0].endswith((")", "?", "!")):
        return not following[:1].isdigit() or not mark[:-1].isdigit()
    if not mark.endswith(","):
        return False
    is_date = mark[:-1].rstrip("stndrh").isdigit() and re.match(r"\d{4}\b", following)
    return not (is_date or _MONTH_NAMES.match(mark[:-1]))


def _without_mark(words: list[re.Match[str]], lengths: Lengths) -> tuple[int, Pause]:
    """A long clause without a usable mark: before the last joint word in reach, else at the last gap in reach."""
    begin = words[0].start()
    reach = [at for at, word in enumerate(words) if at and words[at - 1].end() - begin <= lengths.target]
    late = [at for at in reach if words[at].start() - begin >= lengths.target // 3 and _may_part(words, at)]
    commas = [at for at in late if words[at - 1][0].endswith((",", ";", ":"))]
    joints = [at for at in late if _JOINTS.match(words[at][0])]
    best = commas or joints or late or reach or [len(words)]
    at = best[-1]
    return words[at - 1].end(), Pause.COMMA if commas else Pause.NONE


def _may_part(words: list[re.Match[str]], at: int) -> bool:
    """Not between the halves of a name, a date or a quantity, nor behind a word that wants another."""
    before, after = words[at - 1][0], words[at][0]
    if _WANTING.match(before) or _JOINTS.match(before):
        return False
    if any(char.isdigit() for char in before[-1:] + after[:1]):
        return False
    return before.lstrip(_OPENERS) not in _NEVER_LAST and not _MONTH_NAMES.match(before)
