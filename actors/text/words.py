"""Abbreviations, titles, Roman numerals and symbols as words."""

from __future__ import annotations

import re
import unicodedata

from omnirt.actors.text.spoken_numbers import cardinal, digits, ordinal

TITLES = {
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miz",
    "Dr": "Doctor",
    "Prof": "Professor",
    "St": "Saint",
    "Mt": "Mount",
    "Ft": "Fort",
    "Gen": "General",
    "Gov": "Governor",
    "Sen": "Senator",
    "Rep": "Representative",
    "Capt": "Captain",
    "Lt": "Lieutenant",
    "Col": "Colonel",
    "Sgt": "Sergeant",
    "Rev": "Reverend",
    "Hon": "Honorable",
    "Pres": "President",
}
"""Before a name: they never end a sentence."""
ABBREVIATIONS = {
    "e.g.": "for example",
    "eg.": "for example",
    "i.e.": "that is",
    "ie.": "that is",
    "etc.": "et cetera",
    "et al.": "et al",
    "vs.": "versus",
    "vs": "versus",
    "approx.": "approximately",
    "est.": "estimated",
    "incl.": "including",
    "max.": "maximum",
    "dept.": "department",
    "Dept.": "Department",
    "Jr.": "Junior",
    "Sr.": "Senior",
    "Inc.": "Incorporated",
    "Ltd.": "Limited",
    "Corp.": "Corporation",
    "Co.": "Company",
    "Bros.": "Brothers",
    "St.": "Street",
    "Dr.": "Drive",
    "Ave.": "Avenue",
    "Blvd.": "Boulevard",
    "Rd.": "Road",
    "Apt.": "Apartment",
    "Mon.": "Monday",
    "Tue.": "Tuesday",
    "Tues.": "Tuesday",
    "Wed.": "Wednesday",
    "Thu.": "Thursday",
    "Thurs.": "Thursday",
    "Fri.": "Friday",
    "w/o": "without",
    "w/": "with ",
}
BEFORE_NUMBERS = {
    "No.": "number",
    "no.": "number",
    "Nos.": "numbers",
    "Fig.": "figure",
    "fig.": "figure",
    "Vol.": "volume",
    "vol.": "volume",
    "Ch.": "chapter",
    "ch.": "chapter",
    "Sec.": "section",
    "sec.": "section",
    "p.": "page",
    "pp.": "pages",
    "pg.": "page",
    "ca.": "circa",
    "c.": "circa",
}
SYMBOLS = {
    "&": "and",
    "@": "at",
    "%": "percent",
    "+": "plus",
    "=": "equals",
    "<": "less than",
    ">": "greater than",
    "/": "slash",
    "\\": "backslash",
    "|": "pipe",
    "^": "caret",
    "*": "asterisk",
    "_": "underscore",
    "~": "tilde",
    "`": "backtick",
    "$": "dollar",
    "\u00a3": "pound",
    "\u20ac": "euro",
    "\u00a5": "yen",
    "\u00a2": "cent",
    "\u00a7": "section",
    "\u00b6": "paragraph",
    "\u00a9": "copyright",
    "\u00ae": "registered",
    "\u2122": "trademark",
    "\u00b0": "degrees",
    "\u00ba": "degrees",
    "\u00b1": "plus or minus",
    "\u00d7": "times",
    "\u00f7": "divided by",
    "\u2248": "approximately",
    "\u2260": "is not equal to",
    "\u2264": "less than or equal to",
    "\u2265": "greater than or equal to",
    "\u2192": "to",
    "\u221e": "infinity",
    "\u221a": "square root of",
    "\u00b2": "squared",
    "\u00b3": "cubed",
    "\u00b5": "micro",
}


def _any_of(words: dict[str, str] | tuple[str, ...]) -> str:
    return "|".join(sorted((re.escape(word) for word in words), key=len, reverse=True))


_TITLE = re.compile(rf"\b({_any_of(TITLES)})(?:\. ?(?=[A-Z])| (?=[A-Z][a-z]))")
_ABBREVIATION = re.compile(rf"(?<![\w.])({_any_of(ABBREVIATIONS)})(?![\w])")
_BEFORE_NUMBER = re.compile(rf"(?<![\w.])({_any_of(BEFORE_NUMBERS)})\s?(?=[#(]?\d|[IVX]{{2,}}\b)")
_STREET = re.compile(r"(\d+ (?:[A-Z]\w*\.? )+)(St|Dr)\.")
_SHARP = re.compile(r"\b([CF])#(?!\w)")
_DOTTED = re.compile(r"\b((?:[A-Za-z]\.){2,})")
_FORMULA = re.compile(r"(?<!\w)(?=(?:\d*[A-Z]){2})(?:[BCFHIKNOPSUVWY]{1,3}(?:[2-9]|1\d))+[BCFHIKNOPSUVWY]{0,3}(?!\w)")
"""Elements of one letter, and how many: CO2, H2SO4."""
_HASH = re.compile(r"#(?=\d)")
_ABOUT = re.compile(r"~(?=\s?[\d$\u20ac\u00a3])")
_NUMERAL = r"(?=[IVXLC])(X{0,3}(?:IX|IV|V?I{0,3})|X[LC]|L?X{1,3}(?:IX|IV|V?I{0,3}))"
_COUNTED = (
    "Chapter", "Part", "Act", "Scene", "Section", "Volume", "Book", "Phase", "Article", "World War", "Type", "Level",
    "Stage", "Class", "Grade", "Super Bowl", "Apollo", "Episode", "Round", "Mark",
)  # fmt: skip
_CROWNED = (
    "Pope", "King", "Queen", "Henry", "Louis", "Edward", "George", "William", "Charles", "James", "Richard",
    "Elizabeth", "Napoleon", "Pius", "Benedict", "Leo", "John Paul", "Frederick", "Philip", "Alexander", "Nicholas",
    "Peter", "Catherine", "Ivan",
)  # fmt: skip
_ROMAN_COUNT = re.compile(rf"\b({_any_of(_COUNTED)}) {_NUMERAL}\b(?!['.]\w)", re.IGNORECASE)
_ROMAN_ORDER = re.compile(rf"\b({_any_of(_CROWNED)}) {_NUMERAL}\b(?!['.]\w)")
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def expand_abbreviations(text: str) -> str:
    """Before anything reads digits or dots: what stands for a word becomes that word."""
    text = _HASH.sub("number ", _ABOUT.sub("about ", _SHARP.sub(r"\1 sharp", text)))
    text = _STREET.sub(lambda match: match[1] + {"St": "Street", "Dr": "Drive"}[match[2]] + _end(match), text)
    text = _BEFORE_NUMBER.sub(lambda match: f"{BEFORE_NUMBERS[match[1]]} ", text)
    text = _TITLE.sub(lambda match: f"{TITLES[match[1]]} ", text)
    text = _ABBREVIATION.sub(_abbreviation, text)
    text = _DOTTED.sub(_dotted, text)
    text = _ROMAN_COUNT.sub(lambda match: f"{match[1]} {cardinal(_roman(match[2]))}" if match[2] else match[0], text)
    return _ROMAN_ORDER.sub(lambda match: f"{match[1]} the {ordinal(_roman(match[2]))}" if match[2] else match[0], text)


def spell_formulas(text: str) -> str:
    """After addresses, which may hold anything: "H2O" -> "H two O"."""
    return _FORMULA.sub(_formula, text)


def _formula(match: re.Match[str]) -> str:
    return " ".join(cardinal(int(part)) if part.isdecimal() else part for part in re.findall(r"\d+|[A-Z]", match[0]))


def _abbreviation(match: re.Match[str]) -> str:
    return ABBREVIATIONS[match[1]] + _end(match)


def _dotted(match: re.Match[str]) -> str:
    """ "U.S.A." -> "U S A"; "a.m." and "p.m." are left for whoever reads the time before them."""
    if match[1].lower() in ("a.m.", "p.m."):
        return match[0]
    return " ".join(match[1].replace(".", "").upper()) + _end(match)


def _end(match: re.Match[str]) -> str:
    """The dot of an abbreviation that ends the text ends the sentence too."""
    return "." if match[0].endswith(".") and not match.string[match.end() :].strip("\"') ") else ""


def _roman(numeral: str) -> int:
    values = [_VALUES[char] for char in numeral.upper()]
    return sum(-v if v < after else v for v, after in zip(values, [*values[1:], 0], strict=True))


def speak_symbols(text: str) -> str:
    """Last: every sign that is neither letter nor punctuation becomes its name."""
    return "".join(char if _is_text(char) else f" {_name(char)} " for char in text)


def _is_text(char: str) -> bool:
    if char < "\u0080":
        return char.isalpha() or char in " .,;:!?'\"()-"
    return char == "\u2014" or char == "\u2013" or (char.isalpha() and not "\u0370" <= char <= "\u03ff")


def _name(char: str) -> str:
    known = SYMBOLS.get(char)
    if known is not None:
        return known
    if char == "#":
        return "hashtag"
    name = unicodedata.name(char, "").lower()
    if name.startswith("greek"):
        return name.split(" letter ")[-1].split(" with ")[0]
    plain = name.replace("-", " ").removesuffix(" sign").removesuffix(" symbol")
    return " ".join(digits(word) or word for word in plain.split())
