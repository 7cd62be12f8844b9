"""How frames are drawn: what a checkpoint's generation_config.json says, and what a request changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from omnirt.actors.models.json_object import read_json
from omnirt.errors import ConfigError, InvalidRequest

FRAMES_MIN = 2
"""Frames before the stop code may come."""
INNER = "subtalker_"
"""Of the keys for the codes of a frame after its first."""
_BOUNDS = {
    "temperature": (0.0, 10.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1 << 30),
    "repetition_penalty": (0.01, 10.0),
    "max_new_tokens": (1, 1 << 20),
}


class Drawing(msgspec.Struct, frozen=True):
    """`temperature` 0 is greedy; `top_k` 0 and `top_p` 1 leave all codes."""

    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0


class SamplingDefaults(msgspec.Struct, frozen=True):
    first: Drawing = Drawing()
    """Of a frame's first code."""
    inner: Drawing = Drawing()
    """Of the others."""
    repetition_penalty: float = 1.05
    """For first codes that a request has had."""
    frames_min: int = FRAMES_MIN
    frames_max: int = 2048

    @classmethod
    def read(cls, folder: Path) -> SamplingDefaults:
        """generation_config.json over the family's defaults. Raises ConfigError."""
        path = folder / "generation_config.json"
        raw = read_json(path) if path.is_file() else {}
        try:
            return cls().changed(raw)
        except InvalidRequest as error:
            raise ConfigError(f"{path}: {error.message}") from None

    def changed(self, params: Mapping[str, Any]) -> SamplingDefaults:
        """By the keys of generation_config.json that are in `params`; null changes nothing. Raises InvalidRequest."""
        penalty = _number(params, "repetition_penalty", "repetition_penalty")
        frames = _number(params, "max_new_tokens", "max_new_tokens")
        return msgspec.structs.replace(
            self,
            first=_drawing(self.first, params, "", "do_sample"),
            inner=_drawing(self.inner, params, INNER, f"{INNER}dosample"),
            repetition_penalty=self.repetition_penalty if penalty is None else float(penalty),
            frames_max=self.frames_max if frames is None else int(frames),
        )


def _drawing(known: Drawing, params: Mapping[str, Any], prefix: str, switch: str) -> Drawing:
    temperature, top_k, top_p = (_number(params, prefix + name, name) for name in ("temperature", "top_k", "top_p"))
    if params.get(switch) is False:
        temperature = 0.0
    return Drawing(
        temperature=known.temperature if temperature is None else float(temperature),
        top_k=known.top_k if top_k is None else int(top_k),
        top_p=known.top_p if top_p is None else float(top_p),
    )


def _number(params: Mapping[str, Any], key: str, bound: str) -> float | None:
    value = params.get(key)
    if value is None:
        return None
    low, high = _BOUNDS[bound]
    whole = isinstance(low, int)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise InvalidRequest(f"{key} = {value!r} must be {kind} between {low:g} and {high:g}", param=key)
    if bound == "top_p" and not value:
        raise InvalidRequest(f"{key} must be above 0 and at most 1", param=key)
    return value
