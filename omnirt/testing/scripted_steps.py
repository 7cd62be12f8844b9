"""What a scripted request does, step by step (see `scripted_service`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from numpy.typing import NDArray

from omnirt.session.service import Submit
from omnirt.wire.payload import TokenLogprob, Transcript

RATE = 24_000


class Say(Struct, frozen=True):
    """One chunk of audio."""

    samples: NDArray[Any]
    rate: int = RATE


class SayText(Struct, frozen=True):
    """One chunk of text."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class SayTranscript(Struct, frozen=True):
    transcript: Transcript


class Report(Struct, frozen=True):
    """What a stage says of the request; it arrives with the end."""

    stage: str
    values: dict[str, Any]


class Wait(Struct, frozen=True):
    seconds: float


class Hold(Struct, frozen=True):
    """Stop here until `ScriptedService.release`."""


class Then(Struct, frozen=True):
    """Wait until the input is complete, then go on with what `make` gives for all of its text."""

    make: Callable[[str], Iterable[Step]]


class Fail(Struct, frozen=True):
    code: str
    message: str = "scripted failure"
    stage: str = "voice"
    param: str = ""


Step = Say | SayText | SayTranscript | Report | Wait | Hold | Then | Fail
Script = Callable[[Submit], Iterable[Step]]
