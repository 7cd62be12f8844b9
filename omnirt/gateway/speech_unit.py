"""A unit of text on its way into the pipeline: collected until its request is made, then handed on as it comes.

Invariants: a request gets a bounded number of further inputs (the runtime keeps what a request was given until its
first output): the first pieces at once, as every one of them may be the one that lets speech begin, later ones
together. No text is lost because speech ended before the text did (the model chose to, or was told how much to make):
what its request did not get is for another one.
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
    def __init__(
        self, utterance: int, sentence: int, settings: Settings, text: str, chars_max: int, *, is_further: bool = False
    ) -> None:
        self.utterance = utterance
        self.sentence = sentence
        self.settings = settings
        self.text = text
        """All of it so far."""
        self.is_further = is_further
        """It goes on where one has ended whose place this is."""
        self.is_whole = False
        self.is_aborted = False
        self.is_over = False
        """Nothing of it will be spoken any more."""
        self.has_failed = False
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
        """The request is over: what comes is only collected, until `goes_on` is asked."""
        self._live = None

    @property
    def spoken(self) -> str:
        """What the pipeline was given."""
        return self.text[: self._given]

    def goes_on(self, *, has_failed: bool) -> bool:
        """After a request: whether there is text that it did not get. That is then all the text of this unit."""
        left = "" if has_failed or self.is_aborted else self.text[self._given :].lstrip()
        if not left:
            self.is_over, self.has_failed = True, has_failed
            return False
        self.text, self._given, self._pieces, self.is_further = left, 0, 0, True
        return True

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
