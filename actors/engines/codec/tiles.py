"""Which tiles the kernels take: measured ones for the products of the 12 Hz codec on an H200, a rule for all others.

A row's samples do not depend on the call it shares, bit for bit, because in all of these tiles a number is summed in
the same order: at least 64 rows (the same matrix instruction) and, where the input is normed, the same depth. In
float32, which is for checks, every product has the same tile.
"""

from __future__ import annotations

from omnirt.kernels.tap_conv import Product
from omnirt.kernels.tap_layout import Tile

LEAST_ROWS = 64
NORM_DEPTH = 128
FILLED = 128
"""Blocks that give every multiprocessor work."""
EXACT = Tile(16, 32, 16, 4, 2)
EXACT_UNIT = Tile(16, 0, 16, 4, 2)
LAST = Tile(64, 0, 0, 4, 0)

Rule = tuple[int, Tile]
"""From so many rows on."""

_THIN = Tile(64, 16, 128, 4, 5)
_NARROW = Tile(64, 32, 128, 4, 5)
_CALM = Tile(64, 32, 128, 4, 4)
_DEEP = Tile(64, 64, 128, 4, 4)
_SQUARE = Tile(64, 64, 64, 4, 4)
_FLAT = Tile(64, 128, 64, 4, 4)
_BLOCK = Tile(128, 128, 64, 8, 4)
_TALL = Tile(256, 128, 64, 8, 3)
PRODUCTS: dict[tuple[int, int, bool], list[Rule]] = {
    (1024, 1536, False): [(0, _THIN), (32, _CALM), (256, _SQUARE)],
    (512, 1024, False): [(0, _THIN), (16, _CALM)],
    (3072, 512, False): [(0, _NARROW), (64, _CALM), (128, _DEEP)],
    (1024, 512, True): [(0, _NARROW), (16, _CALM)],
    (1024, 512, False): [(0, _NARROW), (64, _CALM)],
    (2048, 1024, False): [(0, _THIN), (64, _CALM), (256, _SQUARE), (512, _FLAT)],
    (4096, 1024, False): [(0, _NARROW), (128, _SQUARE), (512, _BLOCK), (1024, Tile(128, 256, 64, 8, 3))],
    (1024, 4096, False): [(0, _THIN), (256, _CALM), (512, _DEEP), (1024, _FLAT)],
    (1536, 7168, False): [(0, _THIN), (128, _CALM), (256, _SQUARE), (1024, Tile(128, 128, 64, 4, 4))],
    (6144, 3072, False): [(0, _DEEP), (128, _FLAT), (256, Tile(128, 128, 64, 4, 4))],
    (768, 5376, False): [(0, _THIN), (512, _DEEP), (1024, _FLAT), (2048, Tile(64, 256, 64, 4, 4))],
    (768, 768, False): [(0, _THIN), (160, _NARROW), (512, _DEEP), (1024, _FLAT), (10240, _TALL)],
    (1920, 1536, False): [(0, _THIN), (128, _NARROW), (512, _SQUARE), (1024, _FLAT), (2048, _BLOCK)],
    (384, 2688, False): [(0, _THIN), (640, _NARROW), (1280, _DEEP), (2560, _FLAT), (10240, _TALL)],
    (384, 384, False): [(0, _THIN), (640, _CALM), (2560, _SQUARE), (5120, _FLAT)],
    (288, 384, False): [(0, Tile(64, 32, 64, 4, 4)), (10240, _TALL)],
}
"""By columns, depth of the sum, whether it is gated."""
UNITS: dict[int, list[Rule]] = {
    192: [(0, Tile(64, 0, 64, 4, 4)), (10240, Tile(64, 0, 64, 4, 3))],
    96: [(0, Tile(64, 0, 32, 4, 6)), (20480, Tile(64, 0, 32, 4, 4))],
}
"""By channels. 96 channels with 64 rows and 8 warps read outside their memory: never that."""


def product_tile(product: Product, m: int, *, exact: bool = False) -> Tile:
    """For `m` rows."""
    if exact:
        return EXACT
    known = PRODUCTS.get((product.columns, product.weight.shape[0], product.gated))
    return _chosen(known, m) if known else default_tile(product, m)


def unit_tile(channels: int, m: int, *, exact: bool = False) -> Tile:
    if exact:
        return EXACT_UNIT
    known = UNITS.get(channels)
    return _chosen(known, m) if known else Tile(LEAST_ROWS, 0, _power_in(channels, 64), 4, 3)


def default_tile(product: Product, m: int) -> Tile:
    """The largest tile that still gives every multiprocessor work; small ones look further ahead."""
    depth = _power_in(product.channels, NORM_DEPTH if product.norm_eps else 64)
    if not product.norm_eps:
        for rows, columns, warps, stages in ((128, 256, 8, 3), (128, 128, 8, 4), (64, 128, 4, 4)):
            blocks = -(-m // rows) * -(-product.columns // columns)
            if m >= rows and product.columns >= columns and blocks >= FILLED:
                return Tile(rows, columns, depth, warps, stages)
    return Tile(LEAST_ROWS, 32, depth, 4, 4)


def _chosen(rules: list[Rule], m: int) -> Tile:
    return [tile for least, tile in rules if m >= least][-1]


def _power_in(number: int, most: int) -> int:
    return min(number & -number, most)
