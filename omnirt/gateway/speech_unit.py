"""A unit of text on its way into the pipeline: collected until its request is made, then handed on as it comes.

Invariant: a request gets a bounded number of further inputs (the runtime keeps what a request was given until its first
output): the first pieces at once, as every one of them may be the one that lets speech begin, later ones together.
"""

from __future__ import annotations

from omnirt.errors import Cancelled
from omnirt.gateway.stream_settings import Settings
from omnirt.session.service import Live
from omnirt.wire.payload import Text

PROMPT_PIECES = 96
"""Handed on one by one."""
FURTHER_PIECES = 96
"""How many the rest makes, at most."""


class Unit:
    def __init__(self, utterance: int, sentence: int, settings: Settings, text: str, chars_max: int) -> None:
        self.utterance = utterance
        self.sentence = sentence
        self.settings = settings
        self.text = text
        """All of it so far."""
        self.is_whole = False
        self.is_aborted = False
        self._piece_chars = max(1, chars_max // FURTHER_PIECES)
        self._live: Live | None = None
        self._given = 0
        """Characters that the pipeline has."""
        self._pieces = 0

    def attach(self, live: Live, given: int) -> None:
        """`live` has the first `given` characters."""
        self._live, self._given = live, given
        if self.is_aborted:
            live.cancel("the utterance was given up")
        else:
            self._hand_on()

    def add(self, text: str) -> None:
        self.text += text
        self._hand_on()

    def finish(self) -> None:
        self.is_whole = True
        self._hand_on()

    def abort(self) -> None:
        self.is_whole = self.is_aborted = True
        if self._live is not None:
            self._live.cancel("the utterance was given up")

    def detach(self) -> None:
        """The request is over: what comes is only collected."""
        self._live = None

    def _hand_on(self) -> None:
        live = self._live
        if live is None:
            return
        waiting = len(self.text) - self._given
        is_due = self._pieces < PROMPT_PIECES or waiting >= self._piece_chars or self.is_whole
        try:
            if waiting and is_due:
                live.extend("text", Text(self.text[self._given :]))
                self._given = len(self.text)
                self._pieces += 1
            if self.is_whole:
                live.end_input()
        except Cancelled:  # it ended early; its last event says why
            self._live = None
