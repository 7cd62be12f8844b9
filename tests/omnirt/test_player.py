"""What a listener hears, with given times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirt.player import Player

MS = 1_000_000


def played(*packets, rate=1000):
    """Packets as (ms, samples); at rate 1000 a sample is a millisecond."""
    player = Player(rate)
    for at_ms, samples in packets:
        player.feed(at_ms * MS, samples)
    return player


def test_packets_in_time_are_no_underrun():
    player = played((0, 100), (50, 100), (200, 100))
    assert (player.underruns, player.dry_s, player.deficit_s) == (0, 0.0, 0.0)
    assert player.played_s == pytest.approx(0.3)


def test_a_packet_that_comes_when_all_is_played_counts_once_with_its_silence():
    player = Player(1000)
    assert player.feed(7000 * MS, 100) == 0
    assert player.feed(7130 * MS, 100) == 30 * MS
    assert (player.underruns, player.dry_s) == (1, pytest.approx(0.03))


def test_a_silence_moves_what_follows():
    player = played((0, 100), (150, 100), (250, 100), (350, 100))
    assert (player.underruns, player.dry_s) == (1, pytest.approx(0.05))
    later = played((0, 100), (150, 100), (260, 100))
    assert (later.underruns, later.dry_s) == (2, pytest.approx(0.06))


def test_a_burst_after_a_silence_does_not_undo_it():
    player = played((0, 100), (400, 100), (401, 1000), (1500, 100))
    assert (player.underruns, player.dry_s) == (1, pytest.approx(0.3))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=30))
def test_silences_add_up_to_the_lateness_of_the_latest_packet(gaps):
    at = fed = 0
    packets, lateness = [], [0]
    for gap, samples in gaps:
        at += gap
        packets.append((at, samples))
        lateness.append(at - packets[0][0] - fed)
        fed += samples
    player = played(*packets)
    assert player.dry_ns == max(lateness) * MS
    assert player.deficit_s == player.dry_s
    assert (player.underruns == 0) == (player.dry_ns == 0)
