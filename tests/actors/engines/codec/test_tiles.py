"""Every tile keeps the order of sums, so that a row's samples depend on nothing but its codes."""

import pytest

torch = pytest.importorskip("torch")

SIZES = (1, 4, 16, 64, 200, 2560, 40960, 491520)


@pytest.fixture
def tiles(interpreted):
    from omnirt.actors.engines.codec import tiles

    return tiles


def test_tiles_have_the_same_matrix_instruction(tiles):
    rules = [rule for known in (*tiles.PRODUCTS.values(), *tiles.UNITS.values()) for rule in known]
    assert all(tile.m >= tiles.LEAST_ROWS for _, tile in rules)


def test_tiles_divide_what_they_sum(tiles):
    from omnirt.kernels.tap_conv import Product

    for columns, depth, gated in tiles.PRODUCTS:
        weight = torch.empty(depth, columns * (2 if gated else 1), device="meta")
        for m in SIZES:
            tile = tiles.product_tile(Product(weight, gated=gated), m)
            assert depth % tile.k == 0


def test_normed_products_sum_their_squares_in_one_order(tiles):
    from omnirt.kernels.tap_conv import Product

    for columns, gated in ((3072, False), (1024, True), (1024, False), (96, False)):
        weight = torch.empty(512, columns * (2 if gated else 1), device="meta")
        product = Product(weight, norm_eps=1e-5, gated=gated)
        assert {tiles.product_tile(product, m).k for m in SIZES} == {tiles.NORM_DEPTH}


def test_unknown_products_get_a_tile_that_fits(tiles):
    from omnirt.kernels.tap_conv import Product

    for channels, columns in ((48, 80), (256, 256), (1024, 2048)):
        for m in SIZES:
            tile = tiles.product_tile(Product(torch.empty(channels * 7, columns, device="meta"), taps=7), m)
            assert channels % tile.k == 0
            assert tile.m >= tiles.LEAST_ROWS
    assert tiles.unit_tile(48, 1000).k == 16


def test_the_tile_that_faulted_is_not_offered(tiles):
    for m in SIZES:
        assert tiles.unit_tile(96, m).warps == 4
