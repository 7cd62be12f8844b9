"""Recordings that are kept: how long, and who decodes."""

import asyncio

import numpy as np
import pytest

from omnirt.gateway.kept_recordings import KeptRecordings, seconds_of
from omnirt.wire.payload import Pcm


def get(kept, key, seconds=1.0, may_be_kept=lambda: True):
    async def decode():
        return (Pcm(np.zeros(round(seconds * 100), np.int16), 100),)

    return asyncio.run(kept.get(key, decode, may_be_kept))


def test_the_least_recently_used_goes_first_and_the_last_one_stays():
    kept = KeptRecordings(5.0)
    for key in "abac":
        get(kept, key, 2.0)
    assert (kept.keys, kept.seconds) == (["a", "c"], 4.0)
    get(kept, "d", 50.0)
    assert (kept.keys, kept.seconds) == (["d"], 50.0)


def test_of_recordings_that_are_nearly_nothing_only_so_many_are_kept():
    kept = KeptRecordings(5.0)
    for at in range(100):
        get(kept, str(at), 0.01 * (at % 2))
    assert (kept.keys, kept.seconds) == (["95", "96", "97", "98", "99"], 5.0)
    for key in [*kept.keys, "0"]:
        kept.drop(key)
    assert kept.seconds == 0.0


def test_what_is_dropped_is_decoded_again():
    kept = KeptRecordings(5.0)
    first = get(kept, "a")
    assert get(kept, "a") is first
    for _ in range(2):
        kept.drop("a")
    assert (kept.keys, kept.seconds) == ([], 0.0)
    assert get(kept, "a") is not first


def test_what_may_not_be_kept_is_given_out_all_the_same():
    kept = KeptRecordings(5.0)
    assert seconds_of(get(kept, "a", may_be_kept=lambda: False)) == 1.0
    assert not kept.keys


def test_what_is_kept_cannot_be_written():
    kept = KeptRecordings(5.0)
    with pytest.raises(ValueError, match="read-only"):
        get(kept, "a")[0].samples[0] = 1
