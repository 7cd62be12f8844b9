"""Which line of a TOML file each key stands on. tomllib does not tell, and an error without a line is half an error.

Good enough for messages: keys inside inline tables and multi-line values get the line of the key that holds them.
"""

from __future__ import annotations

import re

Path = tuple[str, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")


def key_lines(text: str) -> dict[Path, int]:
    """Path -> line, counted from 1. Tables of an array have their position in the path: `("stage", "0", "batch")`."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            name = _parts(header[2])
            if header[1] == "[[":
                counts[name] = counts.get(name, -1) + 1
            table = _inside(name, counts)
            lines.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            lines.setdefault(table + _parts(key[1]), number)
    return lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of `path`, or of the nearest thing around it that has one; 0 when nothing has."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)


def _parts(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _inside(name: Path, counts: dict[Path, int]) -> Path:
    """`stage.options` below the third `[[stage]]` is `("stage", "2", "options")`."""
    path: Path = ()
    for length in range(1, len(name) + 1):
        path += (name[length - 1],)
        if name[:length] in counts:
            path += (str(counts[name[:length]]),)
    return path
