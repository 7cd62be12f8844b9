"""Fields of a decoded JSON body, read with their types: None where absent, a 400 that names the field where wrong.

Rules for all of them: an explicit null means absent; fields nested in `extra_body` count, the top level wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from omnirt.gateway.body import as_object
from omnirt.gateway.errors import ApiError, invalid

Fields = Mapping[str, Any]

INT64_MAX = (1 << 63) - 1
PLAIN_CHARS_MAX = 4096
"""Of a value that goes to the stages as it is."""
SPEED_MIN, SPEED_MAX = 0.25, 4.0
UNSUPPORTED = "unsupported_parameter"


def flat(body: object) -> dict[str, Any]:
    """The fields that are there."""
    given = as_object(body)
    if given is None:
        raise invalid("The body must be a JSON object.", None)
    nested = as_object(given.get("extra_body", {}))
    if nested is None and given["extra_body"] is not None:
        raise invalid("extra_body must be an object.", "extra_body")
    fields = {name: value for name, value in (nested or {}).items() if value is not None}
    fields |= {name: value for name, value in given.items() if value is not None}
    fields.pop("extra_body", None)
    return fields


def text(fields: Fields, name: str, chars_max: int = 1024, within: str = "") -> str | None:
    """`within`: the path of the object that `fields` are, with its dot."""
    value = fields.get(name)
    if value is None:
        return None
    param = within + name
    if not isinstance(value, str):
        raise invalid(f"{param} must be a string.", param)
    if len(value) > chars_max:
        raise invalid(f"{param} has {len(value)} characters; the limit is {chars_max}.", param)
    return value


def choice(fields: Fields, name: str, choices: Collection[str], within: str = "") -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        raise invalid(f"{within}{name} must be one of: {', '.join(choices)}.", within + name)
    return value


def flag(fields: Fields, name: str, within: str = "") -> bool | None:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise invalid(f"{within}{name} must be true or false.", within + name)


def whole(fields: Fields, name: str, low: int, high: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(f"{name} must be a whole number.", name)
    if not low <= value <= high:
        raise invalid(f"{name} must be from {low} to {high}.", name)
    return value


def number(fields: Fields, name: str, low: float, high: float) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid(f"{name} must be a number.", name)
    if not low <= value <= high:
        raise invalid(f"{name} must be from {low:g} to {high:g}.", name)
    return float(value)


def share(fields: Fields, name: str) -> float | None:
    """A part of a whole that is not nothing."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool) and isinstance(value, (int, float)) and not 0 < value <= 1:
        raise invalid(f"{name} must be above 0 and at most 1.", name)
    return number(fields, name, 0.0, 1.0)


def record(fields: Fields, name: str, within: str = "") -> Fields | None:
    """A nested object."""
    value = fields.get(name)
    if value is None:
        return None
    found = as_object(value)
    if found is None:
        raise invalid(f"{within}{name} must be an object.", within + name)
    return found


def name_of(value: object, param: str) -> str | None:
    """A voice or the like, as a string or as `{"id": string}`."""
    entry = as_object(value)
    if entry is not None:
        value = entry.get("id", "")
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise invalid(f'{param} must be a string or {{"id": string}}, and not empty.', param)
    return value


def seed_of(fields: Fields) -> int | None:
    return whole(fields, "seed", -INT64_MAX - 1, INT64_MAX)


def speed_of(fields: Fields, honoured: Collection[str]) -> float:
    """Of speech. Another than 1 must be one that a stage acts on."""
    value = number(fields, "speed", SPEED_MIN, SPEED_MAX)
    if value is None or value == 1.0:
        return 1.0
    if "speed" not in honoured:
        raise unsupported("speed", "This model speaks at speed 1.0 only.")
    return value


def plain(fields: Fields, names: Collection[str]) -> dict[str, Any]:
    """Those of `names` that are there, as they are, which must not be lists, objects or long: each stage of the request
    is told them, all in one control message."""
    found = {name: fields[name] for name in sorted(names) if fields.get(name) is not None}
    for name, value in found.items():
        if isinstance(value, dict | list):
            raise invalid(f"{name} must be a plain value.", name)
        if isinstance(value, str):
            text(found, name, PLAIN_CHARS_MAX)
        elif isinstance(value, int) and not -INT64_MAX <= value <= INT64_MAX:  # no message could carry it
            raise invalid(f"{name} is out of range.", name)
    return found


def unsupported(name: str, why: str = "") -> ApiError:
    """What would change the answer and cannot be honoured is refused, never ignored."""
    return invalid(why or f"This model does not support {name}.", name, UNSUPPORTED)
