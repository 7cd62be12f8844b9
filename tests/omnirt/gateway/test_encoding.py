"""Pieces of PCM in, pieces of a format out."""

import asyncio

import numpy as np
import pytest

from omnirt.errors import StageFailed
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.encoding import Encoding
from omnirt.testing.scripted_service import ScriptedService, tone
from omnirt.wire.payload import Pcm


@pytest.fixture
def core():
    made = Core(ScriptedService(), GatewayConfig())
    yield made
    made.close()


def encoded(encoding, *payloads):
    async def run():
        return [*[await encoding.feed(payload) for payload in payloads], await encoding.flush()]

    return asyncio.run(run())


def test_samples_are_copied_where_nothing_is_to_be_done(core):
    encoding = Encoding(core, "pcm", 24_000)
    assert encoded(encoding, *[Pcm(tone(0.25), 16_000)] * 2) == [tone(0.25).tobytes()] * 2 + [b""]
    assert (encoding.rate, encoding.samples, encoding.seconds()) == (16_000, 12_000, 0.75)


def test_the_wanted_rate_is_that_of_the_encoded_audio(core):
    encoding = Encoding(core, "pcm", 24_000, wanted_rate=8_000)
    data = b"".join(encoded(encoding, Pcm(tone(0.5), 24_000)))
    assert abs(len(data) / 2 - 4_000) < 50
    assert (encoding.rate, encoding.seconds()) == (8_000, 0.5)


@pytest.mark.parametrize("format", ["pcm", "mp3"])
def test_a_pipeline_that_changes_its_rate_has_failed(core, format):
    with pytest.raises(StageFailed, match="from 24000 to 16000 Hz"):
        encoded(Encoding(core, format, 24_000), Pcm(tone(0.1), 24_000), Pcm(tone(0.1), 16_000))


def test_silence_from_the_pipeline_is_a_file_all_the_same(core):
    encoding = Encoding(core, "wav", 24_000)
    assert b"".join(encoded(encoding)).startswith(b"RIFF")
    assert (encoding.rate, encoding.seconds()) == (24_000, 0.0)


def test_what_is_encoded_on_a_thread_is_memory_of_its_own(core):
    samples = tone(0.5).copy()
    encoding = Encoding(core, "flac", 24_000)

    async def run():
        work = asyncio.ensure_future(encoding.feed(Pcm(samples, 24_000)))
        first = await work
        samples[:] = 0
        return first + await encoding.flush()

    kept = Encoding(core, "flac", 24_000)
    assert asyncio.run(run()) == b"".join(encoded(kept, Pcm(tone(0.5), 24_000)))
    assert np.any(tone(0.5))
