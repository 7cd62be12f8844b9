"""The session and what it is asked."""

import numpy as np

from omnirt.actors.models.hibari.frames import BINS
from omnirt.actors.models.hibari.network import Network, reader, session
from omnirt.actors.models.hibari.weights import ACOUSTIC, assets


def test_a_sentence_becomes_frames_of_a_spectrum(spoken):
    assert spoken.lh.shape == spoken.phi.shape == (BINS, len(spoken.f0))
    assert spoken.f0.max() > 100


def test_the_same_phonemes_give_the_same_frames_and_slower_ones_more():
    network = Network()
    once, twice, slow = (network.spectra("h\u0259l\u02c8O.", speed) for speed in (1.0, 1.0, 0.5))
    np.testing.assert_array_equal(once.lh, twice.lh)
    assert len(slow.f0) > 1.8 * len(once.f0)


def test_words_outside_the_lexicon_are_read_too():
    read = reader()
    assert read("hello") == "h\u0259l\u02c8O"
    assert len(read("zorblax")) > 4


def test_a_session_has_one_thread_everywhere_so_that_answers_do_not_depend_on_the_machine():
    options = session(assets() / ACOUSTIC).get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
