"""Tables: units, currencies and scales, by the way they are written."""

from __future__ import annotations

from typing import NamedTuple


class Money(NamedTuple):
    one: str
    many: str
    cent: str = "cent"
    cents: str = "cents"
    """Empty for a currency without a smaller coin."""


_DOLLAR = Money("dollar", "dollars")
_EURO = Money("euro", "euros")
_POUND = Money("pound", "pounds", "penny", "pence")
_YEN = Money("yen", "yen", "", "")

MONEY = {
    "$": _DOLLAR,
    "US$": Money("U S dollar", "U S dollars"),
    "C$": Money("Canadian dollar", "Canadian dollars"),
    "A$": Money("Australian dollar", "Australian dollars"),
    "\u20ac": _EURO,
    "\u00a3": _POUND,
    "\u00a5": _YEN,
    "\u20b9": Money("rupee", "rupees", "paisa", "paise"),
    "\u20a9": Money("won", "won", "", ""),
    "\u20bf": Money("bitcoin", "bitcoin", "", ""),
    "\u00a2": Money("cent", "cents", "", ""),
}
CODES = {
    "USD": Money("U S dollar", "U S dollars"),
    "EUR": _EURO,
    "GBP": _POUND,
    "JPY": _YEN,
    "CNY": Money("yuan", "yuan", "", ""),
    "CHF": Money("Swiss franc", "Swiss francs", "", ""),
    "CAD": Money("Canadian dollar", "Canadian dollars"),
    "AUD": Money("Australian dollar", "Australian dollars"),
    "INR": Money("rupee", "rupees", "paisa", "paise"),
}
WORDS_OF_SCALE = "hundred|thousand|million|billion|trillion"
SCALE_LETTERS = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "mm": "million",
    "bn": "billion",
    "b": "billion",
    "tn": "trillion",
    "t": "trillion",
}


def _metric(unit: str, name: str, prefixes: str) -> dict[str, tuple[str, str]]:
    named = {
        "n": "nano",
        "\u00b5": "micro",
        "m": "milli",
        "c": "centi",
        "k": "kilo",
        "M": "mega",
        "G": "giga",
        "T": "tera",
    }
    return {p + unit: (named[p] + name, named[p] + (name if name == "hertz" else name + "s")) for p in prefixes}


UNITS = {
    **_metric("m", "meter", "n\u00b5mck"),
    **_metric("g", "gram", "\u00b5mk"),
    **_metric("L", "liter", "m"),
    **_metric("l", "liter", "mc"),
    **_metric("s", "second", "n\u00b5m"),
    **_metric("W", "watt", "mkMG"),
    **_metric("V", "volt", "mk"),
    **_metric("B", "byte", "kMGT"),
    **_metric("Hz", "hertz", "kMG"),
    "m": ("meter", "meters"),
    "g": ("gram", "grams"),
    "L": ("liter", "liters"),
    "W": ("watt", "watts"),
    "V": ("volt", "volts"),
    "s": ("second", "seconds"),
    "h": ("hour", "hours"),
    "Hz": ("hertz", "hertz"),
    "KB": ("kilobyte", "kilobytes"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "dB": ("decibel", "decibels"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "in": ("inch", "inches"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "mi": ("mile", "miles"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "gal": ("gallon", "gallons"),
    "mph": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "fps": ("frame per second", "frames per second"),
    "rpm": ("revolution per minute", "revolutions per minute"),
}
"""As written -> (one, many). `in` counts only right after the number."""
