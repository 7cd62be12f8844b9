"""Recorded questions for benches, spoken by the packaged voice in this process before anything is measured."""

from __future__ import annotations

import numpy as np
from serve_ask import Recording

from omnirt.actors.stages.acoustic import Acoustic
from omnirt.actors.stages.synthesis import Synthesis
from omnirt.gateway.media import int16_of, wav_header
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, NoOptions, Request
from omnirt.wire.payload import Text

RATE = 24_000
SILENCE_S = 0.3
"""Before and behind the words, as in recordings."""


def spoken(texts: list[str]) -> list[Recording]:
    ctx = Context("voice", "cpu", 0, 1, lambda _: None)
    acoustic, synthesis = Acoustic(NoOptions()), Synthesis(NoOptions())
    acoustic.start(ctx)
    synthesis.start(ctx)
    return [_spoken(ctx, acoustic, synthesis, text) for text in texts]


def _spoken(ctx: Context, acoustic: Acoustic, synthesis: Synthesis, text: str) -> Recording:
    one, two = (Request(RequestId(1), "r", 1, {}, 0) for _ in range(2))
    silence = np.zeros(int(SILENCE_S * RATE), np.int16)
    parts = [silence]
    acoustic.admit(ctx, Chunk(one, "text", Text(text), 0))
    acoustic.close(ctx, one)
    end = False
    while not end:
        for emission in acoustic.step(ctx, [one]):
            end = emission.end
            if emission.payload is not None:
                heard = synthesis.step(ctx, [Chunk(two, "frames", emission.payload, 0)])
                parts += [int16_of(sound.payload.samples) for sound in heard]  # type: ignore[union-attr]
    parts += [int16_of(sound.payload.samples) for sound in synthesis.finish(ctx, two)]  # type: ignore[union-attr]
    acoustic.forget(ctx, one)
    synthesis.forget(ctx, two)
    samples = np.concatenate([*parts, silence])
    return Recording(wav_header(RATE, 2 * samples.size) + samples.tobytes(), samples.size / RATE)
