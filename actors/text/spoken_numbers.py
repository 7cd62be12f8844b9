"""Numbers as American English words. Pure; every digit it is given is spoken."""

from __future__ import annotations

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SCALES = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
]
_IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}

CARDINAL_DIGITS_MAX = 15
"""Longer numbers without separators are codes (cards, serials) and are read digit by digit."""


def cardinal(n: int) -> str:
    """1234 -> "one thousand two hundred thirty-four"."""
    if n < 0:
        return f"minus {cardinal(-n)}"
    if n == 0:
        return ONES[0]
    groups: list[str] = []
    for scale in SCALES:
        n, group = divmod(n, 1000)
        if group:
            groups.append(f"{_below_thousand(group)} {scale}".strip())
        if not n:
            break
    else:
        raise ValueError("a number too large for words")
    return " ".join(reversed(groups))


def _below_thousand(n: int) -> str:
    words: list[str] = []
    if n >= 100:
        words.append(f"{ONES[n // 100]} hundred")
        n %= 100
    if n >= 20:
        words.append(TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else ""))
    elif n:
        words.append(ONES[n])
    return " ".join(words)


def ordinal(n: int) -> str:
    """23 -> "twenty-third"."""
    words = cardinal(n)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    if last in _IRREGULAR:
        return head + _IRREGULAR[last]
    return head + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def year(n: int) -> str:
    """1984 -> "nineteen eighty-four", 2005 -> "two thousand five", 1900 -> "nineteen hundred"."""
    high, low = divmod(n, 100)
    if not 1100 <= n < 10_000 or (high % 10 == 0 and low < 10):
        return cardinal(n)
    if low == 0:
        return f"{cardinal(high)} hundred"
    return f"{cardinal(high)} {'oh ' if low < 10 else ''}{cardinal(low)}"


def digits(text: str) -> str:
    """ "007" -> "zero zero seven"; anything but a digit is skipped."""
    return " ".join(ONES[int(char)] for char in text if char.isdecimal())


def number(text: str) -> str:
    """A written number, "1,234.50" or ".5": a cardinal, then "point" and every digit after it."""
    whole, point, fraction = text.partition(".")
    whole = whole.replace(",", "")
    words: list[str] = []
    if whole:
        as_code = len(whole) > CARDINAL_DIGITS_MAX or (len(whole) > 1 and whole[0] == "0")
        words.append(digits(whole) if as_code else cardinal(int(whole)))
    if point and fraction:
        words += ["point", digits(fraction)]
    return " ".join(words)


def plural(words: str) -> str:
    """ "ninety" -> "nineties", "six" -> "sixes"."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith(("x", "s", "ch")) else "s")
