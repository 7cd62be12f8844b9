"""Written English to spoken English: figures, money, dates, addresses and signs become words.

`normalise` is pure and drops nothing that is content: what it does not know it spells or calls by its name. Its answer
holds letters, punctuation a voice can act on, and no digit. The order of the rules matters: each takes away what a
later one would misread (an address has dots, a date has slashes, a price has a comma).
"""

from __future__ import annotations

import re

from omnirt.actors.text.amounts import speak_amounts
from omnirt.actors.text.clean import clean
from omnirt.actors.text.moments import speak_moments
from omnirt.actors.text.web import spell_addresses
from omnirt.actors.text.words import expand_abbreviations, speak_symbols, spell_formulas

_TIDY = (
    (re.compile(r"\.{2,}"), "\u2026"),
    (re.compile(r"[!?]*\?[!?]*"), "?"),
    (re.compile(r":(?=\S)"), ": "),
    (re.compile(r"([!?])\1+"), r"\1"),
    (re.compile(r"\s*-{2,}\s*|\s+[-\u2013]\s+|\u2013"), " \u2014 "),
    (re.compile(r"(?<=[^\W\d_])-(?![^\W\d_])|(?<![^\W\d_])-(?=[^\W\d_])"), " "),
    (re.compile(r",(?:\s*,)+"), ","),
    (re.compile(r"\s+([,.;:!?\u2026)])"), r"\1"),
    (re.compile(r"\(\s+"), "("),
    (re.compile(r",([.;:!?])"), r"\1"),
)


def normalise(text: str) -> str:
    text = clean(text)
    text = expand_abbreviations(text)
    text = spell_addresses(text)
    text = spell_formulas(text)
    text = speak_moments(text)
    text = speak_amounts(text)
    text = speak_symbols(text)
    text = " ".join(text.split())
    for pattern, tidy in _TIDY:
        text = pattern.sub(tidy, text)
    return " ".join(text.split())
