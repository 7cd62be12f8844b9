"""What a request may ask of the thinker, checked, and what holds when it asks for nothing.

A default comes from the stage's options, else from the checkpoint's generation_config.json, else it changes nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from omnirt.actors.engines.sampling import LOGPROBS_NONE, Sampling
from omnirt.errors import InvalidRequest

STOPS_MAX = 16
TOP_LOGPROBS_MAX = 20
_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
}
_COUNTS = ("top_k", "min_tokens")
HONOURED = (*_RANGES, *_COUNTS, "max_tokens", "stop", "logprobs", "top_logprobs", "ignore_eos")


class Defaults(msgspec.Struct, frozen=True):
    """For parameters that a request leaves out."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0

    @classmethod
    def of(cls, folder: Path, options: Mapping[str, Any]) -> Defaults:
        """`options`: by name; None for what is not set."""
        path = folder / "generation_config.json"
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        values = {name: config[name] for name in _CONFIGURED if config.get(name) is not None}
        if config.get("do_sample") is False:
            values["temperature"] = 0.0
        given = {name: value for name, value in options.items() if value is not None}
        return cls(**{**values, **given})


_CONFIGURED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class Wishes(msgspec.Struct, frozen=True):
    """What one request asks for. `max_tokens`: 0 when it sets no limit."""

    sampling: Sampling
    stops: tuple[str, ...]
    max_tokens: int

    def within(self, room: int, default: int) -> Sampling:
        """With `room` for so many tokens; `default`: as many as there are when nothing is asked for, 0 for all."""
        limit = min(self.max_tokens or default or room, room)
        return msgspec.structs.replace(self.sampling, max_tokens=limit, min_tokens=min(self.sampling.min_tokens, limit))


def wishes(params: Mapping[str, Any], seed: int, defaults: Defaults) -> Wishes:
    """Raises InvalidRequest naming the parameter."""
    given = {name: value for name, value in params.items() if value is not None}
    values: dict[str, Any] = {name: _number(given, name, defaults) for name in _RANGES}
    values |= {name: _count(given, name, 0, getattr(defaults, name)) for name in _COUNTS}
    max_tokens = _count(given, "max_tokens", 1, 0)
    if max_tokens and values["min_tokens"] > max_tokens:
        raise InvalidRequest(f"min_tokens must be at most max_tokens, {max_tokens}", param="min_tokens")
    sampling = Sampling(seed=seed, ignore_eos=_flag(given, "ignore_eos"), logprobs=_logprobs(given), **values)
    return Wishes(sampling, _stops(given), max_tokens)


def _number(given: Mapping[str, Any], name: str, defaults: Defaults) -> float:
    low, high = _RANGES[name]
    value = given.get(name, getattr(defaults, name))
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or math.isnan(value):
        raise InvalidRequest(f"{name} must be a number from {low:g} to {high:g}", param=name)
    return float(value)


def _count(given: Mapping[str, Any], name: str, low: int, default: int) -> int:
    value = given.get(name, default)
    if name in given and (isinstance(value, bool) or not isinstance(value, int) or value < low):
        raise InvalidRequest(f"{name} must be a whole number, {low} or more", param=name)
    return int(value)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", param=name)
    return value


def _logprobs(given: Mapping[str, Any]) -> int:
    top = _count(given, "top_logprobs", 0, 0)
    if top > TOP_LOGPROBS_MAX:
        raise InvalidRequest(f"top_logprobs must be at most {TOP_LOGPROBS_MAX}", param="top_logprobs")
    return top if _flag(given, "logprobs") else LOGPROBS_NONE


def _stops(given: Mapping[str, Any]) -> tuple[str, ...]:
    value = given.get("stop", [])
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InvalidRequest("stop must be strings that are not empty", param="stop")
    if len(stops) > STOPS_MAX:
        raise InvalidRequest(f"stop has {len(stops)} strings; at most {STOPS_MAX} are looked for", param="stop")
    return tuple(stops)
