"""What a listener hears of a stream: a player that starts with the first packet and plays at the rate of the audio.

    packets  |..|    |..|..|          |..|
    plays    [--][--][--]   (dry)     [--]

Pure: times are given, in ns on any one clock. Server and bench use the same one, so their figures mean the same.
"""

from __future__ import annotations

from omnirt.clock import NS


class Player:
    __slots__ = ("_fed", "_start_ns", "dry_ns", "rate", "underruns")

    def __init__(self, rate: int) -> None:
        """`rate`: samples per second."""
        self.rate = rate
        self.underruns = 0
        """Times it ran dry: had played everything and waited for more."""
        self.dry_ns = 0
        """Silence in all, between the first packet and the last."""
        self._start_ns = -1
        """When playing began, later by every silence since."""
        self._fed = 0

    def feed(self, at_ns: int, samples: int) -> int:
        """A packet arrived. The silence before it, in ns; 0 when it came in time."""
        late_ns = 0
        if self._start_ns < 0:
            self._start_ns = at_ns
        else:
            late_ns = at_ns - self._start_ns - self._fed * NS // self.rate
            if late_ns > 0:
                self.underruns += 1
                self.dry_ns += late_ns
                self._start_ns += late_ns
            else:
                late_ns = 0
        self._fed += samples
        return late_ns

    @property
    def dry_s(self) -> float:
        return self.dry_ns / NS

    @property
    def deficit_s(self) -> float:
        """The worst deficit: how much later the player would have had to start never to run dry.

        Every silence moves what follows by its own length, so a packet is late again only where it is later than any
        before it: the silences add up to the lateness of the latest packet, which is this."""
        return self.dry_s

    @property
    def played_s(self) -> float:
        """Audio received, in seconds."""
        return self._fed / self.rate
