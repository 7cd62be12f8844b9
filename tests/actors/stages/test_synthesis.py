"""The second half of the voice, fed with frames of our own."""

import itertools

import numpy as np
import pytest

from omnirt.actors.models.hibari.frames import BINS, AcousticFrames, Spectra, silence
from omnirt.actors.stages.samples import to_int16
from omnirt.actors.stages.synthesis import CHUNK_SAMPLES_MAX, Synthesis
from omnirt.ids import RequestId
from omnirt.pipeline.deploy import load_plan
from omnirt.runtime.stage import Chunk, Context, NoOptions, Request

HOP = 300


@pytest.fixture
def synthesis():
    return Synthesis(NoOptions())


@pytest.fixture
def ctx():
    return Context("synthesis", "cpu", 0, 1, lambda text: None)


def clause(frames, seed):
    random = np.random.default_rng(seed)
    parts = [(random.standard_normal((BINS, frames)) - 2).astype(np.float32) for _ in range(5)]
    return Spectra(*parts, np.full(frames, 150.0 + seed, np.float32))


def payloads(shorten=1.0):
    """Three clauses with silences of 500 and 30,000 samples between them."""
    clauses = [(clause(37, 1), 0), (clause(4, 2), 500), (clause(21, 3), 30_000)]
    return [block for spectra, lead in clauses for block in spectra.blocks(lead, shorten)]


def request(seed=5, id=1):
    return Request(RequestId(id), f"r{id}", seed, {}, 0)


def pcm(synthesis, ctx, request, chunks):
    out = [synthesis.step(ctx, [Chunk(request, "frames", chunk, seq)]) for seq, chunk in enumerate(chunks)]
    return [emission.payload.samples for emission in itertools.chain(*out, synthesis.finish(ctx, request))]


def test_the_answer_has_a_hop_for_each_frame_and_the_silences_between(synthesis, ctx):
    samples = np.concatenate(pcm(synthesis, ctx, request(), payloads()))
    assert samples.dtype == np.int16
    assert len(samples) == (37 + 4 + 21) * HOP + 500 + 30_000
    assert not samples[37 * HOP : 37 * HOP + 500].any()
    assert not samples[41 * HOP + 500 : 41 * HOP + 30_500].any()


def test_chunks_put_together_are_the_one_shot_answer(synthesis, ctx):
    streamed = np.concatenate(pcm(synthesis, ctx, request(id=1), payloads()))
    whole = np.concatenate(pcm(synthesis, ctx, request(id=2), [AcousticFrames.joined(payloads())]))
    np.testing.assert_array_equal(streamed, whole)


@pytest.mark.parametrize("cut", [1, 19, 20, 21, 36, 37, 38, 40, 41, 42, 61])
def test_whatever_the_cut_no_sample_is_lost_or_changed(synthesis, ctx, cut):
    joined = AcousticFrames.joined(payloads())
    names = AcousticFrames.__struct_fields__
    halves = [
        AcousticFrames(*(getattr(joined, name)[at] for name in names)) for at in (slice(0, cut), slice(cut, None))
    ]
    whole = np.concatenate(pcm(synthesis, ctx, request(id=1), [joined]))
    np.testing.assert_array_equal(np.concatenate(pcm(synthesis, ctx, request(id=2), halves)), whole)


def test_no_chunk_is_longer_than_the_pipeline_file_allows(synthesis, ctx):
    edge = next(edge for edge in load_plan("speech").edges if edge.source == "synthesis")
    chunks = pcm(synthesis, ctx, request(), [AcousticFrames.joined(payloads())])
    assert max(len(chunk) for chunk in chunks) == CHUNK_SAMPLES_MAX
    assert all(chunk.nbytes <= edge.chunk_bytes_max for chunk in chunks)


def test_requests_in_one_step_do_not_hear_each_other(synthesis, ctx):
    alone = np.concatenate(pcm(synthesis, ctx, request(seed=5), payloads()))
    mine, other = request(seed=5, id=1), request(seed=6, id=2)
    heard = []
    for seq, chunk in enumerate(payloads()):
        for emission in synthesis.step(ctx, [Chunk(other, "frames", chunk, seq), Chunk(mine, "frames", chunk, seq)]):
            heard += [emission.payload.samples] if emission.request is mine else []
    np.testing.assert_array_equal(np.concatenate(heard), alone)


def test_the_seed_decides_the_noise_and_nothing_else_does(synthesis, ctx):
    first, again, other = (
        np.concatenate(pcm(synthesis, ctx, request(seed=seed), payloads())) for seed in (5, 5, 6)
    )  # fmt: skip
    np.testing.assert_array_equal(first, again)
    assert len(first) == len(other)
    assert (first != other).any()


def test_received_arrays_may_be_overwritten_after_the_step(synthesis, ctx):
    wanted = np.concatenate(pcm(synthesis, ctx, request(id=1), payloads()))
    mine, heard = request(id=2), []
    for seq, chunk in enumerate(payloads()):
        arrays = {name: np.array(getattr(chunk, name)) for name in AcousticFrames.__struct_fields__}
        emissions = synthesis.step(ctx, [Chunk(mine, "frames", AcousticFrames(**arrays), seq)])
        heard += [emission.payload.samples for emission in emissions]
        for array in arrays.values():
            array.fill(1)
    np.testing.assert_array_equal(np.concatenate(heard), wanted)


def test_shortened_speech_is_shorter_by_exactly_that(synthesis, ctx):
    samples = np.concatenate(pcm(synthesis, ctx, request(), payloads(shorten=2.0)))
    assert len(samples) == (37 + 4 + 21) * HOP // 2 + 500 + 30_000


def test_silent_frames_are_silent_and_there(synthesis, ctx):
    (samples,) = pcm(synthesis, ctx, request(), list(silence(16).blocks(0, 1.0)))
    assert len(samples) == 16 * HOP
    assert not samples.any()


def test_loud_samples_stop_at_the_rail_and_never_wrap():
    loud = np.array([0.0, 0.5, 1.0, 1.7, -1.0, -3.0], np.float32)
    assert to_int16(loud).tolist() == [0, 16384, 32767, 32767, -32767, -32767]


def test_a_forgotten_request_keeps_nothing(synthesis, ctx):
    mine = request()
    synthesis.step(ctx, [Chunk(mine, "frames", payloads()[0], 0)])
    synthesis.forget(ctx, mine)
    assert mine.state is None


def test_the_stage_says_its_rate(synthesis):
    assert synthesis.facts() == {"sample_rate": 24_000}
