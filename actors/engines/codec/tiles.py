"""Which tiles the kernels take: measured ones for the products of the 12 Hz codec on an H200, a rule for all others.

A row's samples do not depend on the call it shares, bit for bit, because in all of these tiles a number is summed in the
same order: at least 64 rows (the same matrix instruction) and, where the input is normed, the same depth. In float32,
which is for checks, every product has the same tile.
"""

from __future__ import annotations

from omnirt.kernels.tap_conv import Product, Tile

LEAST_ROWS = 64
NORM_DEPTH = 128
FILLED = 128
"""Blocks that give every multiprocessor work."""
EXACT = Tile(16, 32, 16, 4, 2)
EXACT_UNIT = Tile(16, 0, 16, 4, 2)
LAST = Tile(64, 0, 0, 4, 0)

Rule = tuple[int, Tile]
"""From so many rows on."""
PRODUCTS: dict[tuple[int, int, bool], list[Rule]] = {}
"""By columns, depth of the sum, whether it is gated."""
UNITS: dict[int, list[Rule]] = {}
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
