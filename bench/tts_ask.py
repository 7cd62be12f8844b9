"""What `bench/tts` asks: requests for speech of a forced length, as clients of the peer send them.

The n-th request of a run is the same for the same settings: its text, its seed and, where every request is to bring a
recording of its own, that recording.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from array import array
from pathlib import Path
from typing import Any

from msgspec import Struct
from serve_ask import Ask

from omnirt.gateway.media import wav_header

FRAME_S = 0.08
"""Of one codec frame: 12.5 a second."""

TEXTS = (
    "Please tell the people in the first row that the concert will begin again in about ten minutes.",
    "Nobody on the boat had seen the lighthouse before, but its long white beam was easy to follow.",
    "When the bakery opened its doors this morning, a line of patient neighbours reached around the corner.",
    "The old map showed a narrow path over the hills, and we decided to walk it before sunset.",
    "A careful listener can hear the difference between two violins after only a few slow and quiet notes.",
    "Our teacher drew three circles on the board and asked which of them was the largest of all.",
    "Every winter the lake freezes slowly from its edges, until the children may skate right across the middle.",
    "She folded the letter twice, put it into her coat pocket, and never spoke about it to anyone.",
)
"""Of 17 or 18 words, as long as those of the peer's measurement."""

PROMPT = 40
"""Positions of a prompt with one of these, about."""
RATE = 24_000
HUM_S = 3.0


class Asking(Struct, frozen=True):
    """What all requests of a run have in common."""

    url: str
    frames: int
    model: str = ""
    voice: str = ""
    language: str = ""
    texts: tuple[str, ...] = TEXTS
    seed: int = 1
    reference: str = ""
    """A file with a recording of the voice to be copied; `-` for a hum that is made here."""
    reference_text: str = ""
    fresh: bool = False
    """Every request brings a recording that no other has brought."""
    timeout_s: float = 120.0


def asks(asking: Asking) -> Any:
    """A function from a request's number to what is sent."""
    recording = recording_of(asking.reference) if asking.reference else b""

    def make(number: int) -> Ask:
        return Ask(
            "/v1/audio/speech", "application/json", json.dumps(body(asking, number, recording)).encode(), "samples"
        )

    return make


def body(asking: Asking, number: int, recording: bytes = b"") -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": asking.model,
        "input": asking.texts[number % len(asking.texts)],
        "voice": asking.voice,
        "language": asking.language,
        "response_format": "pcm",
        "stream": True,
        "stream_format": "audio",
        "max_new_tokens": asking.frames,
        "ignore_eos": True,
        "seed": asking.seed + number,
    }
    if recording:
        wav = varied(recording, asking.seed + number) if asking.fresh else recording
        fields["task_type"] = "Base"
        fields["ref_audio"] = "data:audio/wav;base64," + base64.b64encode(wav).decode("ascii")
        fields["ref_text"] = asking.reference_text
    return {name: value for name, value in fields.items() if value != ""}


def recording_of(name: str) -> bytes:
    return hum() if name == "-" else Path(name).read_bytes()


def hum(seconds: float = HUM_S) -> bytes:
    """A recording of something like a voice: the length and the loudness are what matters to a clock."""
    tones = ((140, 0.5), (280, 0.25), (420, 0.15), (2300, 0.05))
    samples = array("h")
    for index in range(int(seconds * RATE)):
        at_s = index / RATE
        swell = 0.6 + 0.4 * math.sin(2 * math.pi * 3 * at_s)
        samples.append(round(12_000 * swell * sum(part * math.sin(2 * math.pi * hz * at_s) for hz, part in tones)))
    return wav_header(RATE, 2 * len(samples)) + samples.tobytes()


def varied(wav: bytes, number: int) -> bytes:
    """The same recording but for the lowest bits of its first samples: another content, and nobody hears it."""
    start = wav.find(b"data") + 8
    bits = struct.unpack_from("<32h", wav, start)
    changed = struct.pack("<32h", *((sample & ~1) | (number >> place & 1) for place, sample in enumerate(bits)))
    return wav[:start] + changed + wav[start + len(changed) :]
