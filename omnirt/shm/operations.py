# pyright: basic, reportCallIssue=false
"""Every native operation on shared words: acquire, release, exchange, full fence, and what ring and slab make of them.

Importing this module compiles them with numba, for explicit signatures. That happens once on a machine: `native` keeps
the machine code, and everyone calls it through `atomics`.

Invariants
* all words are 8-byte aligned int64; addresses travel as int64
* on x86-64 acquire and release are plain moves and the full fence is one locked instruction; on arm64 they are
  ldar, stlr and dmb ish. Plain Python stores would be right on the first and wrong on the second.
* the short operations keep the GIL: they last tens of nanoseconds, and giving it up would let another thread hold the
  caller for a whole switch interval. Only the batch operations, which may wait for the peer, release it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from omnirt.shm.layout import (
    ALIGN,
    B_COUNT,
    B_FREE,
    B_LIST,
    B_SLOTS,
    B_STACK,
    FIELDS,
    HEAD,
    HEADER,
    INLINE,
    LINE,
    PAD,
    PLAIN,
    S_AT,
    S_CAPACITY,
    S_CONTROL,
    S_DATA,
    S_GENERATION,
    S_NEXT,
    S_SEEN,
    S_START,
    SLOT,
    STALE,
    TAIL,
    WAITING,
)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


def _loader(order: str) -> Any:
    @intrinsic
    def load(typingctx, address):
        def codegen(context, builder, signature, args):
            return builder.load_atomic(_pointer(builder, args[0]), order, 8)

        return types.int64(types.int64), codegen

    return load


def _storer(order: str) -> Any:
    @intrinsic
    def store(typingctx, address, value):
        def codegen(context, builder, signature, args):
            builder.store_atomic(args[1], _pointer(builder, args[0]), order, 8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


_get, _get_acquire = _loader("monotonic"), _loader("acquire")
_put, _put_release = _storer("monotonic"), _storer("release")


@intrinsic
def _exchange(typingctx, address, value):
    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("xchg", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _fence(typingctx):
    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _copy(typingctx, target, source, nbytes):
    def codegen(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


FUNCTIONS: dict[str, tuple[Any, bool]] = {}
"""Name -> compiled function, and whether it runs without the GIL."""


def _native(signature: str, *, nogil: bool = False) -> Callable[[Any], Any]:
    """Compile for one signature."""

    def compiled(function: Any) -> Any:
        dispatcher = njit(signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
        FUNCTIONS[function.__name__.removeprefix("_")] = (dispatcher, nogil)
        return dispatcher

    return compiled


@_native("int64(int64)")
def _load_acquire(address):
    return _get_acquire(address)


@_native("void(int64, int64)")
def _store_release(address, value):
    _put_release(address, value)


@_native("void()")
def _full_fence():
    _fence()


@_native("void(int64, int64)")
def _begin_step(line, slot):
    """The board's words of a step with one request; see `Board`."""
    progress = _get(line)
    _fence()
    _put(line + 8, 1)
    _put(line + 16, slot)
    _put_release(line, progress + 1)


# ------------------------------------------------------------------------------------------------ producer


@_native("int64(int64, int64, int64, int64)")
def _reserve(state, head_bytes, body_bytes, slot):
    """Place for a record: the offset of its head in the ring's data, or -1 when the ring has no room.

    Nothing is visible, nor any private word moved, before `publish`: a record that is given up is simply reserved over.
    """
    capacity = _get(state + S_CAPACITY)
    kind = SLOT if slot >= 0 else (INLINE if body_bytes > 0 else PLAIN)
    used = HEADER + head_bytes
    if kind == INLINE:
        used = ((used + ALIGN - 1) & ~(ALIGN - 1)) + body_bytes
    need = (used + ALIGN - 1) & ~(ALIGN - 1)
    start = _get(state + S_AT)
    at = start % capacity
    room = capacity - at
    total = need if room >= need else room + need
    # The cached tail only under-reports free space; the consumer's line is read when it seems full, not per record.
    if capacity - (start - _get(state + S_SEEN)) < total:
        _put(state + S_SEEN, _get_acquire(_get(state + S_CONTROL) + TAIL))
        if capacity - (start - _get(state + S_SEEN)) < total:
            return -1
    data = _get(state + S_DATA)
    if room < need:
        _put(data + at + 8, PAD)
        _put(data + at + 16, room)
        _put(data + at, _get(state + S_GENERATION) ^ start)
        start += room
        at = 0
    _put(data + at + 8, kind | (head_bytes << 8))
    _put(data + at + 16, body_bytes)
    _put(data + at + 24, slot)
    _put(state + S_START, start)
    _put(state + S_NEXT, start + need)
    return at + HEADER


@_native("int64(int64)")
def _publish(state):
    """Make the reserved record visible. 1 when the consumer is parked and the caller must ring, else 0.

    Pairs with `park`: head, full fence, waiting here; waiting, full fence, head there. The exchange takes the flag, so
    a burst rings once.
    """
    start = _get(state + S_START)
    control = _get(state + S_CONTROL)
    _put(_get(state + S_DATA) + start % _get(state + S_CAPACITY), _get(state + S_GENERATION) ^ start)
    head = _get(state + S_NEXT)
    _put(state + S_AT, head)
    _put_release(control + HEAD, head)
    _fence()
    if _get(control + WAITING) == 0:
        return 0
    return _exchange(control + WAITING, 0)


# ------------------------------------------------------------------------------------------------ consumer


@_native("int64(int64, int64, int64)")
def _scan(state, out, most):
    """Describe up to `most` unread records in `out` (FIELDS words each); how many, or STALE when the first is not ours.

    Reads only: the records stay in the ring until `advance`.
    """
    capacity = _get(state + S_CAPACITY)
    generation = _get(state + S_GENERATION)
    control = _get(state + S_CONTROL)
    data = _get(state + S_DATA)
    tail = _get(state + S_AT)
    seen = _get(state + S_SEEN)
    count = 0
    while count < most:
        if tail == seen:
            seen = _get_acquire(control + HEAD)
            if tail == seen:
                break
        at = tail % capacity
        record = data + at
        ahead = seen - tail
        if ahead < 0 or ahead > capacity or _get(record) != generation ^ tail:
            return STALE if count == 0 else count
        shape = _get(record + 8)
        body_bytes = _get(record + 16)
        if shape == PAD:
            if body_bytes != capacity - at:
                return STALE if count == 0 else count
            tail += body_bytes
            continue
        head_bytes = shape >> 8
        body_at = (HEADER + head_bytes + ALIGN - 1) & ~(ALIGN - 1)
        used = body_at + body_bytes if shape & 255 == INLINE else HEADER + head_bytes
        if head_bytes < 0 or body_bytes < 0 or at + used > capacity:
            return STALE if count == 0 else count
        row = out + count * (FIELDS * 8)
        tail += (used + ALIGN - 1) & ~(ALIGN - 1)
        _put(row, at + HEADER)
        _put(row + 8, head_bytes)
        _put(row + 16, at + body_at)
        _put(row + 24, body_bytes)
        _put(row + 32, _get(record + 24))
        _put(row + 40, tail)
        count += 1
    _put(state + S_SEEN, seen)
    return count


@_native("void(int64, int64)")
def _advance(state, tail):
    """Give everything before `tail` back to the producer."""
    _put(state + S_AT, tail)
    _put_release(_get(state + S_CONTROL) + TAIL, tail)


@_native("int64(int64)")
def _park(state):
    """Announce that the consumer will sleep. 1: it may. 0: a record came in between, read on."""
    control = _get(state + S_CONTROL)
    _put(control + WAITING, 1)
    _fence()
    if _get_acquire(control + HEAD) == _get(state + S_AT):
        return 1
    _exchange(control + WAITING, 0)
    return 0


@_native("int64(int64)")
def _used(state):
    """Bytes in the ring, read from either end."""
    control = _get(state + S_CONTROL)
    return _get_acquire(control + HEAD) - _get_acquire(control + TAIL)


# ------------------------------------------------------------------------------------------------ slab


@_native("int64(int64)")
def _take(state):
    """The most recently returned free slot (its lines are still in cache), or -1."""
    shared = _get(state + B_LIST)
    slots = _get(state + B_SLOTS)
    seen = _get(state + B_COUNT)
    free = _get(state + B_FREE)
    returned = _get_acquire(shared)
    while seen < returned and free < slots:
        _put(state + B_STACK + free * 8, _get(shared + LINE + (seen % slots) * 8))
        free += 1
        seen += 1
    _put(state + B_COUNT, seen)
    if free == 0:
        return -1
    free -= 1
    _put(state + B_FREE, free)
    return _get(state + B_STACK + free * 8)


@_native("void(int64, int64)")
def _untake(state, slot):
    """Put back a slot that was taken and never sent."""
    free = _get(state + B_FREE)
    _put(state + B_STACK + free * 8, slot)
    _put(state + B_FREE, free + 1)


@_native("void(int64, int64)")
def _give(state, slot):
    """Consumer: return a slot. The list has a place for every slot, so it cannot overflow."""
    shared = _get(state + B_LIST)
    made = _get(state + B_COUNT)
    _put(shared + LINE + (made % _get(state + B_SLOTS)) * 8, slot)
    _put(state + B_COUNT, made + 1)
    _put_release(shared, made + 1)


# ------------------------------------------------------------------------------------------------ batches


@_native("int64(int64, int64, int64, int64)", nogil=True)
def _push_many(state, source, record_bytes, count):
    """Publish up to `count` records of `record_bytes` each from `source`; how many found room. Rings nothing."""
    done = 0
    while done < count:
        at = _reserve(state, record_bytes, 0, -1)
        if at < 0:
            break
        _copy(_get(state + S_DATA) + at, source + done * record_bytes, record_bytes)
        start = _get(state + S_START)
        _put(_get(state + S_DATA) + start % _get(state + S_CAPACITY), _get(state + S_GENERATION) ^ start)
        _put(state + S_AT, _get(state + S_NEXT))
        done += 1
        if done & 15 == 0:  # let the consumer start while the rest is written
            _put_release(_get(state + S_CONTROL) + HEAD, _get(state + S_AT))
    _put_release(_get(state + S_CONTROL) + HEAD, _get(state + S_AT))
    return done


@_native("int64(int64)")
def _must_ring(state):
    """After `push_many`: take the waiting flag; 1 when the caller must ring."""
    _fence()
    control = _get(state + S_CONTROL)
    if _get(control + WAITING) == 0:
        return 0
    return _exchange(control + WAITING, 0)


@_native("int64(int64, int64, int64, int64, int64)", nogil=True)
def _pop_many(state, out, target, record_bytes, count):
    """Copy up to `count` unread records of at most `record_bytes` each to `target`; how many, or STALE.

    `out` is scratch for `scan`, 16 rows. A record of another size ends the batch before it.
    """
    done = 0
    while done < count:
        most = count - done
        found = _scan(state, out, most if most < 16 else 16)
        if found < 0:
            return STALE if done == 0 else done
        if found == 0:
            break
        tail = _get(state + S_AT)
        fit = 0
        data = _get(state + S_DATA)
        while fit < found:
            row = out + fit * (FIELDS * 8)
            if _get(row + 8) != record_bytes or _get(row + 24) != 0:
                break
            _copy(target + (done + fit) * record_bytes, data + _get(row), record_bytes)
            tail = _get(row + 40)
            fit += 1
        if fit == 0:
            break
        _put(state + S_AT, tail)
        _put_release(_get(state + S_CONTROL) + TAIL, tail)
        done += fit
    return done
