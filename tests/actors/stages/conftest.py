"""What tests of stages that hear share: real speech, as 16 kHz int16."""

import functools

import numpy as np
import pytest

RATE = 16_000
SENTENCES = (
    "Please remember to water the plants while I am away.",
    "She opened the old wooden box and found a letter from her grandmother.",
    "Could you tell me how to get to the nearest library?",
    "Scientists have discovered a new species of bird high in the mountains.",
    "The doctor said that a short walk every day would help.",
    "Fresh bread, cold milk and ripe tomatoes are on the kitchen table.",
    "I would rather read a good book than watch television.",
    "Most people think that the answer is simple, and most people are wrong.",
)


@pytest.fixture(scope="session")
def said_sentences():
    return SENTENCES


@pytest.fixture(scope="session")
def speak():
    """Text -> int16 samples at 16 kHz, in the voice of this repository, without silence at either end."""
    from omnirt.actors.models.hibari.decoder import RATE as VOICE_RATE
    from omnirt.actors.stages.acoustic import Acoustic
    from omnirt.actors.stages.synthesis import Synthesis
    from omnirt.ids import RequestId
    from omnirt.runtime.stage import Chunk, Context, NoOptions, Request
    from omnirt.wire.payload import Text

    ctx = Context("voice", "cpu", 0, 1, lambda text: None)
    acoustic, synthesis = Acoustic(NoOptions()), Synthesis(NoOptions())
    acoustic.start(ctx)

    @functools.cache
    def say(text):
        first, second = (Request(RequestId(1), "r1", 1, {}, 0) for _ in range(2))
        acoustic.admit(ctx, Chunk(first, "text", Text(text), 0))
        acoustic.close(ctx, first)
        emissions = []
        while not (emissions and emissions[-1].end):
            emissions += acoustic.step(ctx, [first])
        chunks = [Chunk(second, "frames", each.payload, at) for at, each in enumerate(emissions) if each.payload]
        heard = [each.payload.samples for chunk in chunks for each in synthesis.step(ctx, [chunk])]
        return resampled(np.concatenate(heard), VOICE_RATE)

    return say


def resampled(samples, rate):
    """Band-limited: the spectrum is cut off and turned back."""
    count = len(samples) * RATE // rate
    spectrum = np.fft.rfft(samples.astype(np.float64))[: count // 2 + 1]
    return np.rint(np.fft.irfft(spectrum, count) * (count / len(samples))).clip(-32768, 32767).astype(np.int16)


@pytest.fixture(scope="session")
def pause():
    """Seconds -> silence."""
    return lambda seconds: np.zeros(round(seconds * RATE), np.int16)
