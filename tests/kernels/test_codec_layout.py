"""The sizes of the published decoder."""

from omnirt.kernels.codec_layout import CodecShape, histories, weight_count, weight_sizes

FULL = CodecShape(16, 2048, 512, 1024, 512, 1024, 8, 16, 64, 72, (2, 2), 1536, (8, 5, 4, 3), 1e-5, 1e4)


def test_the_published_decoder_has_its_samples_and_weights():
    assert FULL.samples == 1920
    sizes = weight_sizes(FULL)
    assert sizes["block0.stretch"] == (1536, 768, 16)
    assert sizes["last"] == (1, 96, 7)
    assert weight_count(FULL) - 16 * 2048 * 512 == 105_377_473


def test_every_convolution_keeps_what_its_taps_reach_back():
    kept = {history.name: history for history in histories(FULL)}
    assert kept["pre"].kept == 2
    assert kept["block3.9"] == ("block3.9", 54, 96, 1920)
    assert kept["block1"] == ("block1", 1, 768, 32)
    assert kept["last"].each == FULL.samples
