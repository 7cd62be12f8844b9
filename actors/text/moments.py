"""Dates and times as they are said."""

from __future__ import annotations

import re

from omnirt.actors.text.spoken_numbers import cardinal, ordinal, plural, year

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_MONTH_OF = {short.lower(): name for name in MONTHS for short in (name, name[:3])} | {"sept": "September"}
_MONTH = rf"(?:{'|'.join(MONTHS)}|{'|'.join(name[:3] for name in MONTHS if name != 'May')}|Sept)\b\.?"

_ISO = re.compile(r"(?<![\w-])(\d{4})-(\d{2})-(\d{2})(?:T(?=\d))?(?![\w-]*\d-)")
_US = re.compile(r"(?<![\w/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/])")
_MONTH_DAY = re.compile(
    rf"\b({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?(?:\s?[-\u2013]\s?(\d{{1,2}})(?:st|nd|rd|th)?)?(?!\.\d)(?![\w:%])"
    r"(?:,? (\d{4})(?!\.\d)(?![\w,:%]*\d))?"
)
_DAY_MONTH = re.compile(
    rf"(?<![\w.,$])([Tt]he )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})(?:,? (\d{{4}})(?![\w,.]*\d))?"
)
_HALF = r"\s?([ap])(?:m\b|\.\s?m\b\.?)"
_TIME = re.compile(rf"(?<![\d:.])(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?:{_HALF})?(?![\d:])", re.IGNORECASE)
_TIME_DOT = re.compile(rf"(?<![\d:.])(\d{{1,2}})\.(\d{{2}})()?{_HALF}", re.IGNORECASE)
_HOUR = re.compile(rf"(?<![\w:.,])(\d{{1,2}}){_HALF}", re.IGNORECASE)
_DECADES = re.compile(r"(?<![\w,.])(?:(')|(\d{2}))?(\d0)'?s\b")
_BEFORE_DECADES = frozenset(["the", "his", "her", "their", "my", "our", "your", "early", "mid", "late", "mid-"])


def speak_moments(text: str) -> str:
    text = _ISO.sub(lambda match: _date(match, match[1], match[2], match[3]), text)
    text = _US.sub(_us_date, text)
    text = _MONTH_DAY.sub(_month_day, text)
    text = _DAY_MONTH.sub(_day_month, text)
    text = _TIME.sub(_time, text)
    text = _TIME_DOT.sub(_time, text)
    text = _HOUR.sub(_hour, text)
    return _DECADES.sub(_decade, text)


def _date(match: re.Match[str], years: str, month: str, day: str) -> str:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return match[0]
    return f"{MONTHS[int(month) - 1]} {ordinal(int(day))}, {year(int(years))}" + (
        ", " if match[0].endswith("T") else ""
    )


def _us_date(match: re.Match[str]) -> str:
    first, second, years = match.groups()
    if len(years) == 2:
        years = ("20" if int(years) < 70 else "19") + years
    month, day = (first, second) if int(first) <= 12 else (second, first)
    return _date(match, years, month, day)


def _month_day(match: re.Match[str]) -> str:
    day, until = int(match[2]), int(match[3] or 1)
    if not (1 <= day <= 31 and 1 <= until <= 31):
        return match[0]
    spoken = f"{_month(match[1])} {ordinal(day)}" + (f" to {ordinal(until)}" if match[3] else "")
    return f"{spoken}, {year(int(match[4]))}" if match[4] else spoken


def _day_month(match: re.Match[str]) -> str:
    day = int(match[2])
    if not 1 <= day <= 31:
        return match[0]
    spoken = f"{match[1] or 'the '}{ordinal(day)} of {_month(match[3])}"
    return f"{spoken}, {year(int(match[4]))}" if match[4] else spoken


def _month(written: str) -> str:
    return _MONTH_OF[written.rstrip(".").lower()]


def _time(match: re.Match[str]) -> str:
    hours, minutes, seconds = int(match[1]), int(match[2]), match[3]
    if hours > 24 or minutes > 59 or int(seconds or 0) > 59:
        return match[0].replace(":", " to ")
    words = cardinal(hours)
    if minutes:
        words += f" {'oh ' if minutes < 10 else ''}{cardinal(minutes)}"
    elif not (match[4] or seconds):
        words += " hundred" if hours > 12 else " o'clock" if hours else " hours"
    if seconds:
        words += f" and {cardinal(int(seconds))} second{'' if int(seconds) == 1 else 's'}"
    return words + _half(match, 4)


def _hour(match: re.Match[str]) -> str:
    return cardinal(int(match[1])) + _half(match, 2) if 1 <= int(match[1]) <= 12 else match[0]


def _half(match: re.Match[str], group: int) -> str:
    """ " A M" or " P M"; a dot that also ends the sentence stays."""
    if not match[group]:
        return ""
    rest = match.string[match.end() :].lstrip(" \"')")
    ends = match[0].endswith(".") and (not rest or rest[0].isupper())
    return f" {match[group].upper()} M{'.' if ends else ''}"


def _decade(match: re.Match[str]) -> str:
    century, decade = match[2], match[3]
    if not (match[1] or century):
        before = match.string[: match.start()].split()
        if not before or before[-1].lower() not in _BEFORE_DECADES:
            return match[0]  # "30s" may as well be seconds
    if not century:
        return plural(cardinal(int(decade)))
    if decade == "00":
        return plural(year(int(century) * 100))
    return f"{cardinal(int(century))} {plural(cardinal(int(decade)))}"
