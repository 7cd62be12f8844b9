"""The recording of a voice to copy, as a request names it: pure, nothing is fetched or decoded here.

ref_audio    a URL, a data URL or bare base64; or a list of exactly one
ref_text     what is said in it
references   the same as [{"audio_path": ..., "text": ...}], of exactly one
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import Fields, record, text, unsupported

TEXT_CHARS_MAX = 4096
CANNOT = "This model cannot speak like a recording."


class Reference(Struct, frozen=True):
    """`source`: as the client gave it. `param`: where, for refusals."""

    source: str
    param: str = "ref_audio"


def reference_of(fields: Fields, cloning: bool) -> tuple[Reference | None, str | None]:
    """The recording, and what is said in it; None where the request does not say. Raises a 400."""
    said = _text(fields, "ref_text", "ref_text", cloning)
    one = _only(fields, "ref_audio", cloning)
    other = _only(fields, "references", cloning)
    if one is not None and other is not None:
        raise invalid("references and ref_audio both name a recording; send one of them.", "references")
    if other is not None:
        return _entry(fields, said, cloning)
    return (None if one is None else Reference(_source(one, "ref_audio"))), said


def _only(fields: Fields, name: str, cloning: bool) -> object | None:
    """The value of `name`, or the single one of its list."""
    value = fields.get(name)
    if value is None or value is False:
        return None
    if not cloning:
        raise unsupported(name, CANNOT)
    if not isinstance(value, list):
        return cast("object", value)
    entries = cast("list[object]", value)
    if len(entries) != 1:
        raise invalid(f"{name} has {len(entries)} entries; this model takes exactly one recording.", name)
    if entries[0] is None:
        raise invalid(f"{name}[0] is null.", name)
    return entries[0]


def _entry(fields: Fields, said: str | None, cloning: bool) -> tuple[Reference, str | None]:
    if not isinstance(fields["references"], list):
        raise invalid("references must be a list of one object.", "references")
    entries = cast("list[Any]", fields["references"])
    entry = record({"references[0]": entries[0]}, "references[0]")
    if entry is None:
        raise invalid("references[0] must be an object.", "references[0]")
    param = "references[0].audio_path"
    reference = Reference(_source(entry.get("audio_path"), param), param)
    return reference, _text(entry, "text", "references[0].text", cloning) or said


def _source(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise invalid(f"{param} must be a string: a URL, a data URL or base64.", param)
    if not value.strip():
        raise invalid(f"{param} is empty.", param)
    return value


def _text(fields: Fields, name: str, param: str, cloning: bool) -> str | None:
    """Blank is none."""
    if fields.get(name) is False:
        return None
    within = param.removesuffix(name)
    said = (text(fields, name, TEXT_CHARS_MAX, within) or "").strip() or None
    if said is not None and not cloning:
        raise unsupported(param, CANNOT)
    return said
