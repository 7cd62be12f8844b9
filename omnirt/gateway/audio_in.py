"""Audio that clients send: base64 and containers in, pieces of mono PCM out.

Invariants: refusals name the parameter; what is decoded is bounded by the configured length, what a thread does at a
time by one piece; leaving early (a client that goes) stops the decoding after the packet it is at.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Callable
from typing import BinaryIO

from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError, invalid
from omnirt.gateway.recording import ACCEPTED, RATE, Decoder, UnreadableError, cut_off
from omnirt.wire.payload import Pcm

Keep = Callable[[float], None]
PREFIX = re.compile(r"\s*data:[^,]{0,200},")
BASE64_PREFIX = re.compile(r";\s*base64\s*,$", re.IGNORECASE)
URL_SAFE = str.maketrans("-_", "+/", " \t\r\n\f\v")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
UNUSED_BITS = {2: 0b1111, 3: 0b11}
"""Bits of the last character that an encoder leaves zero, by how many characters the last group has."""


def decode_base64(value: str, param: str) -> bytes:
    """The bytes in `value`: standard or URL-safe alphabet, with or without padding and a `data:` prefix. Raises a 400.

    It takes milliseconds a megabyte: use a thread for what may be large.
    """
    prefix = PREFIX.match(value)
    if prefix is not None and not BASE64_PREFIX.search(prefix[0]):
        raise invalid(f"{param} is a data URL that is not base64.", param)
    text = value[prefix.end() if prefix else 0 :].translate(URL_SAFE)
    body = text.rstrip("=")
    padding = len(text) - len(body)
    if not body:
        raise invalid(f"{param} is empty.", param)
    if len(body) % 4 == 1 or _is_cut(body):
        raise invalid(f"{param} is truncated base64.", param)
    if padding and (padding > 2 or len(text) % 4):
        raise invalid(f"{param} is not valid base64: wrong padding.", param)
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{param} is not valid base64.", param) from error


def check_whole(data: bytes, param: str) -> None:
    """400 for a file whose end is missing."""
    missing = cut_off(data)
    if missing:
        raise invalid(f"The recording in {param} is cut off: {missing} bytes are missing.", param)


def _keep(seconds: float) -> None:
    """There is room."""


async def recording(
    core: Core, data: bytes, param: str, seconds_max: float | None = None, keep: Keep = _keep, rate: int = RATE
) -> list[Pcm]:
    """The recording in `data` as pieces of at most 15 s, `clip` 0. Raises a 400.

    `seconds_max`: its bound, where that is less than the configured one. `keep` is asked for the room of each piece as
    it is made.
    """
    check_whole(data, param)
    if not data:
        raise invalid(f"The recording in {param} is empty; accepted: {ACCEPTED}.", param)
    return await decoded(core, io.BytesIO(data), param, seconds_max, keep, rate)


async def decoded(
    core: Core, file: BinaryIO, param: str, seconds_max: float | None = None, keep: Keep = _keep, rate: int = RATE
) -> list[Pcm]:
    """As `recording`, from a file that can be sought in."""
    limit_s = min(core.config.recording_s_max, core.config.recording_s_max if seconds_max is None else seconds_max)
    decoder = Decoder(file, limit_s, rate)
    pieces: list[Pcm] = []
    try:
        while (samples := await core.threaded(decoder.step)) is not None:
            if samples.size:
                keep(samples.size / rate)
                pieces.append(Pcm(samples, rate))
    except UnreadableError as error:
        raise _unusable(str(error), param) from error
    finally:
        decoder.stop()
    return pieces


def _unusable(reason: str, param: str) -> ApiError:
    return invalid(f"The recording in {param} {reason}", param, "unsupported_media")


def _is_cut(body: str) -> bool:
    """Whether bits are set that no encoder sets: the text went on."""
    unused = UNUSED_BITS.get(len(body) % 4, 0)
    return bool(unused & max(0, ALPHABET.find(body[-1])))
