"""`session.config`: the fields of a speech request, and how a connection wants its speech.

    stream_audio        pieces as they are made; else one binary frame for each unit of text
    split_granularity   none: an utterance is one unit; sentence, clause: one each

Invariant: the room of a recording in the settings is held until others replace them, or the connection ends.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec import Struct

from omnirt.gateway.core import Core
from omnirt.gateway.fields import choice, flag, flat
from omnirt.gateway.speech_pipeline import SpeechPipeline, Voicing
from omnirt.gateway.speech_request import parse_settings
from omnirt.gateway.text_split import GRANULARITIES

DEFAULT_FORMAT = "wav"
"""As clients of this protocol expect; not that of the API's other surface."""
LATE_TEXT = "non_streaming_mode"
"""The parameter of stages that could wait for all of the text."""


class Settings(Struct, frozen=True):
    voicing: Voicing
    rate: int
    """Of the pipeline, where its audio does not say."""
    is_streamed: bool = False
    granularity: str = "none"


class StreamSettings:
    """Those of one connection."""

    def __init__(self, core: Core, pipeline: SpeechPipeline) -> None:
        self._core = core
        self._pipeline = pipeline
        self._held = ExitStack()

    async def load(self, fields: dict[str, Any]) -> Settings:
        """Checked, and ready to speak with. Raises a 4xx that names the field."""
        self._pipeline.check(fields)
        facts = self._pipeline.facts()
        given = flat(fields)
        granularity = choice(given, "split_granularity", GRANULARITIES) or "none"
        is_streamed = flag(given, "stream_audio") or False
        if LATE_TEXT in facts.honoured:
            # Whoever sends text in pieces wants speech before the last one.
            given = {LATE_TEXT: False} | given
        asked = parse_settings(given, self._pipeline.rules(facts, DEFAULT_FORMAT))
        with ExitStack() as stack:
            share = stack.enter_context(self._core.recordings.share())
            voicing = await self._pipeline.voicing(asked, facts, share.take)
            self._held.close()
            self._held = stack.pop_all()
        return Settings(voicing, facts.sample_rate, is_streamed, granularity)

    def close(self) -> None:
        self._held.close()
