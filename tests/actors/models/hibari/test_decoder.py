"""Streaming equals one-shot, and one-shot equals the package's own synthesis."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirt.actors.models.hibari.decoder import HOP, ClauseDecoder, PulseSource
from omnirt.actors.models.hibari.frames import BINS, AcousticFrames, Part

ONE_SHOT_TOLERANCE = 1e-4
"""Against the package: it rounds the pitch differently; a step of 16-bit audio is 3e-5."""


def decode(spectra, sizes, *, packed=True):
    """The clause decoded from blocks of the given sizes (the last takes the rest)."""
    count, at, out = len(spectra.f0), 0, []
    decoder = ClauseDecoder(np.random.default_rng(7))
    for size in [*sizes, count]:
        stop = min(at + size, count)
        if stop == at:
            continue
        arrays = [array[:, at:stop].T for array in spectra[:5]]
        arrays = [np.ascontiguousarray(array) for array in arrays] if packed else arrays
        last = np.arange(at, stop) == count - 1
        lead, shorten = np.where(np.arange(at, stop) == 0, 0, -1), np.ones(stop - at)
        frames = AcousticFrames(*arrays, spectra.f0[at:stop], lead, last, shorten)
        out.append(decoder.feed(Part(frames, 0, stop - at)))
        at = stop
    return np.concatenate(out)


class RecordedNoise:
    """Gives the package the noise that our decoder draws frame by frame."""

    def __init__(self, frames):
        noise = np.random.default_rng(7).standard_normal((frames, 2 * BINS), dtype=np.float32)
        self._noise = np.ascontiguousarray(noise.view(np.complex64).T).view(np.float32)

    def standard_normal(self, shape, dtype):
        assert self._noise.shape == shape
        return self._noise


@given(st.integers(1, 70), st.integers(0, 50), st.lists(st.integers(1, 30), max_size=20))
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_size_give_the_same_samples(random_spectra, frames, seed, sizes):
    spectra = random_spectra(frames, seed)
    np.testing.assert_array_equal(decode(spectra, sizes), decode(spectra, [frames]))


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 6, 40, 300])
def test_every_frame_becomes_one_hop_of_samples(random_spectra, frames):
    assert len(decode(random_spectra(frames), [20] * 20)) == frames * HOP


def test_a_real_sentence_is_what_the_package_makes_of_it(spoken):
    from hibari import dsp

    whole = dsp.synth(*(np.array(array) for array in spoken), RecordedNoise(len(spoken.f0)))
    assert np.abs(whole).max() > 0.1
    np.testing.assert_allclose(decode(spoken, [20] * 50), whole, atol=ONE_SHOT_TOLERANCE)


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 9])
def test_the_shortest_clauses_are_what_the_package_makes_of_them(spoken, frames):
    from hibari import dsp

    short = spoken.cut(40, 40 + frames)
    whole = dsp.synth(*(np.array(array) for array in short), RecordedNoise(frames))
    np.testing.assert_allclose(decode(short, [2] * 5), whole, atol=ONE_SHOT_TOLERANCE)


def test_no_seam_has_a_step_that_the_whole_has_not(spoken):
    """Per seam between blocks: the first difference across it is that of the one-shot waveform."""
    streamed, whole = decode(spoken, [20] * 50), decode(spoken, [])
    seams = np.arange(1, len(spoken.f0) // 20) * 20 * HOP
    for back in range(6):
        at = seams - back * HOP
        np.testing.assert_array_equal(streamed[at] - streamed[at - 1], whole[at] - whole[at - 1])


def test_arrays_laid_out_otherwise_give_the_same_samples(random_spectra):
    spectra = random_spectra(50)
    np.testing.assert_array_equal(decode(spectra, [7] * 9), decode(spectra, [7] * 9, packed=False))


def test_samples_come_four_frames_behind_at_most(random_spectra):
    spectra = random_spectra(40)
    decoder = ClauseDecoder(np.random.default_rng(0))
    blocks = list(spectra.blocks(lead=0, shorten=1.0))
    assert len(decoder.feed(Part(blocks[0], 0, 20))) == (20 - 4) * HOP


def test_pulses_are_silent_where_there_is_no_pitch_and_keep_their_phase_across_blocks():
    f0 = np.concatenate([np.zeros(5), np.full(30, 200.0), np.zeros(5)]).astype(np.float32)
    whole = PulseSource().feed(f0, last=True)
    source = PulseSource()
    pieces = [source.feed(f0[at : at + 1], last=at == len(f0) - 1) for at in range(len(f0))]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert not whole[: 4 * HOP].any()
    peaks = np.flatnonzero(whole > 0.9 * whole.max())
    assert set(np.diff(peaks)[np.diff(peaks) > 10]) <= {119, 120, 121}


def test_loud_values_do_not_overflow(random_spectra):
    spectra = random_spectra(12)
    loud = spectra._replace(lh=spectra.lh + 200, lr=spectra.lr + 200, ln=spectra.ln + 200)
    assert np.isfinite(decode(loud, [5])).all()
