# pyright: basic, reportCallIssue=false, reportIndexIssue=false
"""One step of a decoder as native code: five phases a layer, whose pieces a team of threads takes.

    embed | heads  attend  output  gate_up  down | ... | logits
            \\__________ a layer ______________/

Everything the code needs stands in one array of int64, the control block: the team's words, the shape, where each
matrix lies, and the step's own arrays. A piece is a few dozen outputs of a matrix for up to PART rows; it writes what
no other piece writes.

Invariant: a row's numbers depend on its token, its position and its slot's cache only. See `vector_products` for why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from omnirt.kernels import decoder_layout as at
from omnirt.kernels import team, vector_rows
from omnirt.kernels.decoder_layout import GROUP, NARROW, PART, WIDE
from omnirt.kernels.native_memory import FLOAT, call, float_of, int_at, kept
from omnirt.kernels.row_products import ROWS, gather
from omnirt.kernels.vector_code import LANES
from omnirt.kernels.vector_products import TILE

_add, _copy, _gate = vector_rows.add, vector_rows.copy, vector_rows.gate
_rms_norm, _rotate = vector_rows.rms_norm, vector_rows.rotate


@njit
def _layer(c, layer):
    return c[at.WEIGHTS] + layer * c[at.LAYER_BYTES]


@njit
def _last(c, part):
    return min(part * PART + PART, c[at.ROWS])


# ---------------------------------------------------------------- rows


@njit
def _side_by_side(first, last, row):
    """How many rows from `row` on are multiplied at once: blocks of nearly one size."""
    blocks = (last - first + ROWS - 1) // ROWS
    return min((last - first + blocks - 1) // blocks, last - row)


@njit
def _multiply(c, matrix, base, first, tiles, x, out):
    """Outputs of `tiles` tiles from the `first` one on. x is (rows, address, bytes of a row)."""
    w = base + c[matrix + at.M_AT] + first * c[matrix + at.M_TILE]
    call(c[matrix + at.M_PRODUCT], (x[0], tiles, x[1], x[2], w, c[matrix + at.M_TERMS], out))


@njit
def _normalise(c, rows, weight, to):
    """Rows of X from the first to the last, close-packed."""
    d = c[at.D]
    for row in range(rows[0], rows[1]):
        place = to + (row - rows[0]) * d * FLOAT
        _rms_norm(c[at.X] + row * d * FLOAT, weight, place, d, float_of(c[at.EPS]))


@njit
def _cached(c, cache, row, layer, head):
    slot = int_at(c[at.SLOTS], row)
    return cache + slot * c[at.KV_SLOT] + layer * c[at.KV_LAYER] + head * c[at.KV_HEAD]


# ---------------------------------------------------------------- pieces: (control, layer, piece, ready, scratch)
# `ready` is the part whose normalised rows the thread has in its scratch; each gives it back.


@njit
def _embed(c, layer, piece, ready, scratch):
    """Embeddings lie in tiles, as the matrix of the logits often is the same."""
    size, tile = c[at.D] * FLOAT, c[at.EMBED + at.M_TILE]
    for row in range(piece * PART, _last(c, piece)):
        token = int_at(c[at.TOKENS], row)
        place = c[at.EMBED + at.M_AT] + token // TILE * tile
        gather(c[at.EMBED + at.M_KIND], place, token % TILE, c[at.D], c[at.X] + row * size)
    return ready


@njit
def _heads(c, layer, piece, ready, scratch):
    """One head of q, k or v."""
    heads = c[at.HEADS] + 2 * c[at.KV_HEADS]
    part, head = piece // heads, piece % heads
    first, last = part * PART, _last(c, part)
    base, size, tiles = _layer(c, layer), c[at.D] * FLOAT, c[at.HEAD_TILES]
    if ready != part:
        _normalise(c, (first, last), base + c[at.ATTN_NORM], scratch)
    out, line = scratch + c[at.SCRATCH_OUT], tiles * TILE * FLOAT
    row = first
    while row < last:
        rows = _side_by_side(first, last, row)
        _multiply(c, at.QKV, base, head * tiles, tiles, (rows, scratch + (row - first) * size, size), out)
        for r in range(rows):
            _finish_head(c, layer, head, row + r, out + r * line)
        row += rows
    return part


@njit
def _finish_head(c, layer, head, row, y):
    """Bias, norm and rotation; then to Q or into the cache."""
    base, size = _layer(c, layer), c[at.HEAD_DIM]
    heads, kv_heads = c[at.HEADS], c[at.KV_HEADS]
    position, vectors = int_at(c[at.POSITIONS], row), size // LANES
    if c[at.HAS_BIAS]:
        _add(y, base + c[at.BIAS] + head * size * FLOAT, vectors)
    if head >= heads + kv_heads:
        to = _cached(c, c[at.VALUES], row, layer, head - heads - kv_heads) + position * size * FLOAT
        _copy(to, y, size * FLOAT)
        return
    if c[at.HAS_QK_NORM]:
        _rms_norm(y, base + (c[at.Q_NORM] if head < heads else c[at.K_NORM]), y, size, float_of(c[at.EPS]))
    if head < heads:
        to = c[at.Q] + (row * heads + head) * size * FLOAT
    else:
        to = _cached(c, c[at.KEYS], row, layer, head - heads) + position * size * FLOAT
    turn = position * size * FLOAT
    _rotate(y, c[at.COS] + turn, c[at.SIN] + turn, to, vectors // 2)


@njit
def _attend(c, layer, piece, ready, scratch):
    """The query heads of one row that share a head of keys and values."""
    row, head = piece // c[at.KV_HEADS], piece % c[at.KV_HEADS]
    group, size = c[at.HEADS] // c[at.KV_HEADS], c[at.HEAD_DIM]
    offset = (row * c[at.HEADS] + head * group) * size * FLOAT
    keys, values = _cached(c, c[at.KEYS], row, layer, head), _cached(c, c[at.VALUES], row, layer, head)
    length = int_at(c[at.POSITIONS], row) + 1
    call(c[at.ATTEND], (c[at.Q] + offset, group, size, keys, values, length, scratch + c[at.SCRATCH_SCORES]))
    return ready


@njit
def _residual(c, matrix, layer, piece, x, scratch):
    """A narrow piece of a matrix whose product is added to X. x is (address, bytes of a row)."""
    d, pieces = c[at.D], c[at.D] // NARROW
    part, column = piece // pieces, piece % pieces * NARROW
    first, last = part * PART, _last(c, part)
    out, line = scratch + c[at.SCRATCH_OUT], NARROW * FLOAT
    row = first
    while row < last:
        rows = _side_by_side(first, last, row)
        some = (rows, x[0] + row * x[1], x[1])
        _multiply(c, matrix, _layer(c, layer), column // TILE, NARROW // TILE, some, out)
        for r in range(rows):
            _add(c[at.X] + ((row + r) * d + column) * FLOAT, out + r * line, NARROW // LANES)
        row += rows


@njit
def _output(c, layer, piece, ready, scratch):
    _residual(c, at.OUTPUT, layer, piece, (c[at.Q], c[at.HEADS] * c[at.HEAD_DIM] * FLOAT), scratch)
    return ready


@njit
def _down(c, layer, piece, ready, scratch):
    _residual(c, at.DOWN, layer, piece, (c[at.HIDDEN], c[at.HIDDEN_BYTES]), scratch)
    return ready


@njit
def _gate_up(c, layer, piece, ready, scratch):
    """A group of the gate, and behind it the same of the other half."""
    pieces = c[at.HIDDEN_BYTES] // (GROUP * FLOAT)
    part, group = piece // pieces, piece % pieces
    first, last = part * PART, _last(c, part)
    base, size, tiles = _layer(c, layer), c[at.D] * FLOAT, 2 * GROUP // TILE
    if ready != part:
        _normalise(c, (first, last), base + c[at.MLP_NORM], scratch)
    out, line = scratch + c[at.SCRATCH_OUT], tiles * TILE * FLOAT
    row = first
    while row < last:
        rows = _side_by_side(first, last, row)
        _multiply(c, at.GATE_UP, base, group * tiles, tiles, (rows, scratch + (row - first) * size, size), out)
        for r in range(rows):
            y = out + r * line
            to = c[at.HIDDEN] + (row + r) * c[at.HIDDEN_BYTES] + group * GROUP * FLOAT
            _gate(y, y + GROUP * FLOAT, to, GROUP // LANES)
        row += rows
    return part


@njit
def _logits(c, layer, piece, ready, scratch):
    pieces = (c[at.VOCAB] + WIDE - 1) // WIDE
    part, column = piece // pieces, piece % pieces * WIDE
    first, last = part * PART, min(part * PART + PART, c[at.WANTED_ROWS])
    size, width = c[at.D] * FLOAT, min(WIDE, c[at.VOCAB] - column)
    if ready != part:
        for i in range(first, last):
            wanted = int_at(c[at.WANTED], i)
            _normalise(c, (wanted, wanted + 1), c[at.NORM], scratch + (i - first) * size)
    tiles = (width + GROUP - 1) // GROUP * (GROUP // TILE)
    out, line = scratch + c[at.SCRATCH_OUT], tiles * TILE * FLOAT
    row = first
    while row < last:
        rows = _side_by_side(first, last, row)
        _multiply(c, at.HEAD, 0, column // TILE, tiles, (rows, scratch + (row - first) * size, size), out)
        for r in range(rows):
            to = c[at.LOGITS] + (row + r) * c[at.LOGITS_BYTES] + column * FLOAT
            _copy(to, out + r * line, width * FLOAT)
        row += rows
    return part


# ---------------------------------------------------------------- phases


def _phase(work: Callable[..., int]) -> Any:
    """All pieces of a phase, as far as this thread gets them; then until it is over."""

    @njit
    def phase(c, number, layer, pieces, scratch):
        ready = -1
        piece = team.take(c, number, pieces)
        while piece >= 0:
            ready = work(c, layer, piece, ready, scratch)
            team.finish(c, number, pieces)
            piece = team.take(c, number, pieces)
        team.wait(c, number)

    return phase


_do_embed, _do_heads, _do_attend, _do_output = _phase(_embed), _phase(_heads), _phase(_attend), _phase(_output)
_do_gate_up, _do_down, _do_logits = _phase(_gate_up), _phase(_down), _phase(_logits)


@njit
def _turn(c, number, thread):
    """Every phase of a step, for one thread."""
    scratch = c[at.SCRATCH] + thread * c[at.SCRATCH_BYTES]
    parts = (c[at.ROWS] + PART - 1) // PART
    narrow = parts * (c[at.D] // NARROW)
    groups = parts * (c[at.HIDDEN_BYTES] // (GROUP * FLOAT))
    _do_embed(c, number, 0, parts, scratch)
    for layer in range(c[at.LAYERS]):
        number += 5
        _do_heads(c, number - 4, layer, parts * (c[at.HEADS] + 2 * c[at.KV_HEADS]), scratch)
        _do_attend(c, number - 3, layer, c[at.ROWS] * c[at.KV_HEADS], scratch)
        _do_output(c, number - 2, layer, narrow, scratch)
        _do_gate_up(c, number - 1, layer, groups, scratch)
        _do_down(c, number, layer, narrow, scratch)
    wanted = (c[at.WANTED_ROWS] + PART - 1) // PART
    _do_logits(c, number + 1, 0, max(1, wanted) * ((c[at.VOCAB] + WIDE - 1) // WIDE), scratch)


def run(c, thread):
    """A step for thread 0, the whole life of a helper for those above; -1 ends the helpers."""
    phases = 5 * c[at.LAYERS] + 2
    if thread < 0:
        team.end(c)
        return
    if thread == 0:
        _turn(c, team.begin(c, phases), 0)
        return
    turn = team.sleep(c, 0)
    while turn >= 0:
        _turn(c, turn * phases, thread)
        turn = team.sleep(c, turn)


def compiled() -> Any:
    return kept(njit, "void(int64[::1], int64)", run)
