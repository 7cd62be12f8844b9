"""Samples in, "speech started" and "speech ended" out, with their places. One detector for one recording or one caller.

    likely  0.1 0.2 0.8 0.9 0.9 0.3 0.7 0.2 0.1 0.1 0.1 0.1
                    |first               |quiet
            started at first - pad       ended at quiet + pad (or `silence_s`, if that is less), said once it has
                                         been quiet for `silence_s`

Starts are said once there has been speech for `speech_s`; what is shorter is never mentioned. Between the two
thresholds things stay as they are. Events alternate, their places only grow and do not depend on how the samples were
cut. Speech longer than `speech_max_s` is cut where it was least likely.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from omnirt.actors.models.silero.network import RATE, WINDOW, Memory, Network


class SpeechStarted(NamedTuple):
    at: int
    """Sample, padding included."""


class SpeechEnded(NamedTuple):
    at: int
    """Sample, padding included. It never lies ahead of what was fed."""


Event = SpeechStarted | SpeechEnded


class Sensitivity(msgspec.Struct, frozen=True):
    """The defaults are those of the model's authors."""

    threshold: float = 0.5
    """What is at least as likely is speech; what is HYSTERESIS less is none."""
    speech_s: float = 0.25
    """Shorter is no speech."""
    silence_s: float = 0.1
    """Shorter is part of the speech around it."""
    pad_s: float = 0.03
    speech_max_s: float = 0.0
    """Padding included; 0 for no limit."""


HYSTERESIS = 0.15
THRESHOLD_MIN = 0.01


class Detector:
    def __init__(self, network: Network, sensitivity: Sensitivity) -> None:
        self._network = network
        self._memory = Memory()
        self._threshold = sensitivity.threshold
        self._quiet_below = max(sensitivity.threshold - HYSTERESIS, THRESHOLD_MIN)
        self._speech = round(sensitivity.speech_s * RATE)
        self._silence = round(sensitivity.silence_s * RATE)
        self._pad = round(sensitivity.pad_s * RATE)
        self._speech_max = round(sensitivity.speech_max_s * RATE)
        self._rest = np.zeros(0, np.float32)
        """Samples behind the last whole window."""
        self._at = 0
        """Samples judged."""
        self._first = -1
        """Where the speech begins that goes on; -1 while there is none. It may turn out too short."""
        self._start = 0
        """The same with padding."""
        self._quiet = -1
        """Since when it has been quiet within that speech, -1 if it is not."""
        self._likely: list[float] = []
        """Of each window since `_first`, while there is a limit to its length."""
        self._ended = 0
        """Where the speech before ended."""
        self.speaking = False
        """Whether a start was said whose end was not."""

    @property
    def clear_until(self) -> int:
        """No start that is still to be said lies before."""
        return self._start if self._first >= 0 else max(self._at - self._pad, self._ended)

    def feed(self, samples: np.ndarray) -> list[Event]:
        """`samples`: [T] float32 in -1..1 at RATE, those that follow the ones before."""
        samples = np.concatenate((self._rest, samples))
        whole = len(samples) // WINDOW * WINDOW
        self._rest = samples[whole:].copy()
        return self._judge(samples[:whole])

    def end(self) -> list[Event]:
        """The recording is over: what is said of its end."""
        total = self._at + len(self._rest)
        events: list[Event] = []
        if len(self._rest):
            events = self._judge(np.pad(self._rest, (0, WINDOW - len(self._rest))))
            self._rest = self._rest[:0]
        if self.speaking:
            events.append(self._end(self._quiet if self._quiet >= 0 else total))
        return [type(event)(min(event.at, total)) for event in events]

    def _judge(self, samples: np.ndarray) -> list[Event]:
        events: list[Event] = []
        for likely in self._network.judge(samples, self._memory).tolist():
            self._hear(likely)
            self._at += WINDOW
            if self._first >= 0:
                events += self._decide()
        return events

    def _hear(self, likely: float) -> None:
        """What the window that begins at `_at` changes."""
        if likely >= self._threshold:
            if self._first < 0:
                self._first = self._at
                self._start = max(self._at - self._pad, self._ended)
                self._likely = []
            self._quiet = -1
        elif likely < self._quiet_below and self._first >= 0 and self._quiet < 0:
            self._quiet = self._at
        if self._first >= 0 and self._speech_max:
            self._likely.append(likely)

    def _decide(self) -> list[Event]:
        """What may be said now, at the end of a window."""
        events: list[Event] = []
        if not self.speaking and self._quiet < 0 and self._at - self._first >= self._speech:
            self.speaking = True
            events.append(SpeechStarted(self._start))
        if self._quiet >= 0 and self._at - self._quiet >= self._silence:
            if self.speaking:
                events.append(self._end(self._quiet))
            self._first = -1
        elif self.speaking and self._speech_max and self._at + self._pad - self._start >= self._speech_max:
            events += self._cut()
        return events

    def _end(self, at: int) -> SpeechEnded:
        self.speaking = False
        self._first = self._quiet = -1
        self._ended = at + min(self._pad, self._silence)
        return SpeechEnded(self._ended)

    def _cut(self) -> list[Event]:
        """Behind the least likely window of the later half."""
        half = len(self._likely) // 2
        cut = half + 1 + int(np.argmin(self._likely[half:-1]))
        self._first = self._start = self._at - (len(self._likely) - cut) * WINDOW
        del self._likely[:cut]
        if self._quiet >= 0:
            self._quiet = max(self._quiet, self._first)
        return [SpeechEnded(self._first), SpeechStarted(self._first)]
