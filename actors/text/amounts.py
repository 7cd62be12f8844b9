"""Quantities as they are said: money, units, percentages, fractions, ranges, telephone numbers, and plain numbers.

After `speak_amounts` the text holds no digit any more.
"""

from __future__ import annotations

import re

from omnirt.actors.text.spoken_numbers import cardinal, digits, number, ordinal, plural, year
from omnirt.actors.text.units import CODES, MONEY, SCALE_LETTERS, UNITS, WORDS_OF_SCALE, Money

NUM = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_BEFORE = r"(?<![\w.,])"
_SYMBOLS = "|".join(sorted((re.escape(symbol) for symbol in MONEY), key=len, reverse=True))
_CODES = "|".join(CODES)
_SCALE = rf"(?:\s?({WORDS_OF_SCALE})\b|({'|'.join(SCALE_LETTERS)})(?![\w]))?"

_MONEY_RANGE = re.compile(
    rf"({_SYMBOLS})\s?({NUM})\s?[-\u2013]\s?(?:{_SYMBOLS})?({NUM}){_SCALE}(?![\d-])", re.IGNORECASE
)
_MONEY = re.compile(rf"({_SYMBOLS})\s?({NUM}){_SCALE}", re.IGNORECASE)
_MONEY_CODE_FIRST = re.compile(rf"\b({_CODES})\s?({NUM}){_SCALE}")
_MONEY_AFTER = re.compile(rf"{_BEFORE}({NUM}){_SCALE}\s?(\u20ac|\u00a3|\u00a2|(?:{_CODES})\b)")
_PER = re.compile(
    r"(?<=[A-Za-z])/(hr|hour|h|min|minute|s|sec|second|day|night|week|wk|month|mo|year|yr|person|unit|kg|lb|GB)\b"
)
_PER_WORDS = {
    "hr": "hour",
    "h": "hour",
    "min": "minute",
    "s": "second",
    "sec": "second",
    "wk": "week",
    "mo": "month",
    "yr": "year",
    "kg": "kilogram",
    "lb": "pound",
    "GB": "gigabyte",
}
_PHONE = re.compile(
    r"(?<![\w.,-])(?:(\+\d{1,3})[\s.-]?(?=[\d(][\d\s().-]{8,}))?(?:\((\d{3})\)\s?|(\d{3})[\s.-])?"
    r"(\d{3})(?:-|\.|(?<=[\d)]\s\d{3})\s)(\d{4})(?![\w-]|[.,]\d)"
)
_GROUPS = re.compile(r"(?<![\w.,-])\d+(?:-\d+){2,}(?![\w-])")
_RANGE = re.compile(rf"{_BEFORE}(?<![-/])({NUM})(\s?)(?:-|\u2013|\u2014)\s?({NUM})(?![\d/-]|[.,]\d)")
_FEET = re.compile(r"(?<![\w.,'])(\d{1,2})'\s?(\d{1,2})\"")
_DEGREES = re.compile(rf"{_BEFORE}({NUM})\s?(?:\u00b0|\u00ba)\s?(?:([CFK])(?!\w))?")
_PERCENT = re.compile(rf"{_BEFORE}({NUM})\s?%")
_UNIT_NAMES = "|".join(sorted((re.escape(unit) for unit in UNITS), key=len, reverse=True))
_UNIT = re.compile(rf"{_BEFORE}({NUM})(\s?|-)({_UNIT_NAMES})(\u00b2|\u00b3|\^?[23])?(?![\w/])")
_MIXED = re.compile(r"(?<![\w./,])(\d+)\s+(\d{1,2})/(\d{1,3})(?![\w/])")
_FRACTION = re.compile(r"(?<![\w./,])(\d{1,3})/(\d{1,4})(?![\w/])")
_RATIO = re.compile(r"(?<![\w.:])(\d+):(\d+)(?![\w:])")
_MATHS = re.compile(r"(?<=\d)\s*([-*+x\u00d7\u00f7])\s*(?=\d)")
_OVER = re.compile(r"(?<=\d)\s+/\s+(?=\d)")
_SIGN = re.compile(r"(?<![\w)])-(?=\.?\d)")
_SIGN_OF_MONEY = re.compile(rf"(?<![\w)])-(?=(?:{_SYMBOLS})\s?\.?\d)")
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(st|nd|rd|th)\b", re.IGNORECASE)
_PLURAL = re.compile(r"(?<![\w.,])(\d+)'?s\b")
_YEAR = re.compile(r"(?<![\w.,$])(?<!\d-)(1[1-9]\d\d|20[1-9]\d)(?![\w]|[.,:/]\d)")
_PLAIN = re.compile(NUM)
_POWERS = {"2": "square ", "3": "cubic ", "\u00b2": "square ", "\u00b3": "cubic "}
_MATHS_WORDS = {
    "-": " minus ",
    "*": " times ",
    "x": " times ",
    "\u00d7": " times ",
    "\u00f7": " divided by ",
    "+": " plus ",
}


def speak_amounts(text: str) -> str:
    for pattern, spoken in _RULES:
        text = pattern.sub(spoken, text)
    # What is left touches letters ("H100", "B2B", "3D"): a space keeps the word and the number apart.
    return _PLAIN.sub(_plain, text)


def _money(match: re.Match[str]) -> str:
    return _sum(MONEY[match[1].upper()], match[2], match[3], match[4])


def _money_range(match: re.Match[str]) -> str:
    money = MONEY[match[1].upper()]
    return f"{number(match[2])} to {_sum(money, match[3], match[4], match[5])}"


def _sum(money: Money, amount: str, scale_word: str | None, scale_letter: str | None) -> str:
    scale = scale_word or SCALE_LETTERS.get((scale_letter or "").lower(), "")
    if scale:
        return f"{number(amount)} {scale.lower()} {money.many}"
    whole, _, cents = amount.replace(",", "").partition(".")
    if len(cents) != 2 or not money.cents:
        return f"{number(amount)} {money.one if amount in ('1', '1.0') else money.many}"
    parts: list[str] = []
    if int(whole or 0) or not int(cents):
        parts.append(f"{number(whole or '0')} {money.one if int(whole or 0) == 1 else money.many}")
    if int(cents):
        parts.append(f"{cardinal(int(cents))} {money.cent if int(cents) == 1 else money.cents}")
    return " and ".join(parts)


def _money_after(match: re.Match[str]) -> str:
    sign = match[4]
    return _sum(CODES.get(sign) or MONEY[sign], match[1], match[2], match[3])


def _phone(match: re.Match[str]) -> str:
    country, area, area_bare, first, last = match.groups()
    groups = [digits(part) for part in (country, area or area_bare, first, last) if part]
    return ("plus " if country else "") + ", ".join(groups)


def _range(match: re.Match[str]) -> str:
    first, space, second = match.groups()
    falls = float(first.replace(",", "")) > float(second.replace(",", ""))
    return f"{first} {'minus' if space and falls else 'to'} {second}"


def _degrees(match: re.Match[str]) -> str:
    scale = {"C": " Celsius", "F": " Fahrenheit", "K": " kelvin"}.get(match[2] or "", "")
    return f"{number(match[1])} degree{'' if match[1] == '1' else 's'}{scale}"


def _unit(match: re.Match[str]) -> str:
    one, many = UNITS[match[3]]
    if match[3] == "in" and match[2] == " ":
        return match[0]  # "5 in a row"
    power = {"2": "square ", "3": "cubic ", "\u00b2": "square ", "\u00b3": "cubic "}.get(
        (match[4] or "").lstrip("^"), ""
    )
    return f"{number(match[1])} {power}{one if match[1] == '1' or match[2] == '-' else many}"


def _mixed(match: re.Match[str]) -> str:
    part = _portion(int(match[2]), int(match[3]))
    return f"{number(match[1])} and {'a half' if part == 'one half' else part}" if part else match[0]


def _fraction(match: re.Match[str]) -> str:
    over, under = int(match[1]), int(match[2])
    if match[0] in ("24/7", "9/11") or over == under:
        return f"{number(match[1])} {number(match[2])}"
    return _portion(over, under) or f"{number(match[1])} slash {number(match[2])}"


def _portion(over: int, under: int) -> str:
    """3/4 -> "three quarters"; empty where the figures are no fraction ("24/7")."""
    if not 0 < over < under or under > 100:
        return ""
    name = {2: "half", 4: "quarter"}.get(under) or ordinal(under)
    many = "halves" if under == 2 else f"{name}s"
    return f"{cardinal(over)} {name if over == 1 else many}"


def _ordinal(match: re.Match[str]) -> str:
    written = match[1].replace(",", "")
    return ordinal(int(written)) if len(written) <= 12 else f"{digits(written)} {match[2]}"


def _plain(match: re.Match[str]) -> str:
    before = " " if match.start() and match.string[match.start() - 1].isalpha() else ""
    after = match.string[match.end() : match.end() + 1]
    return before + number(match[0]) + (" " if after.isalpha() else "")


_RULES = (
    (_SIGN_OF_MONEY, "minus "),
    (_MONEY_RANGE, _money_range),
    (_MONEY, _money),
    (_MONEY_CODE_FIRST, lambda match: _sum(CODES[match[1]], match[2], match[3], match[4])),
    (_MONEY_AFTER, _money_after),
    (_PHONE, _phone),
    (_GROUPS, lambda match: ", ".join(digits(part) for part in match[0].split("-"))),
    (_RANGE, _range),
    (_MATHS, lambda match: _MATHS_WORDS[match[1]]),
    (_OVER, " over "),
    (_SIGN, "minus "),
    (_FEET, lambda match: f"{number(match[1])} foot {number(match[2])}"),
    (_DEGREES, _degrees),
    (_PERCENT, lambda match: f"{number(match[1])} percent"),
    (_UNIT, _unit),
    (_PER, lambda match: f" per {_PER_WORDS.get(match[1], match[1])}"),
    (_MIXED, _mixed),
    (_FRACTION, _fraction),
    (_RATIO, r"\1 to \2"),
    (_ORDINAL, _ordinal),
    (_PLURAL, lambda match: plural(number(match[1]))),
    (_YEAR, lambda match: year(int(match[1]))),
)
