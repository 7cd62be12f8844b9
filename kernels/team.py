# pyright: basic, reportCallIssue=false
"""Threads that work together for a millisecond and then sleep: atomics, a futex, and tickets for pieces of work.

    caller          TURN += 1, wake ---- pieces of phase 0 | phase 1 | ... | last ---- returns
    helper  asleep on TURN ......... awake: pieces of whatever phase is on ........... asleep on TURN

A phase is a number of pieces. TICKET holds the phase (above) and its next piece (below); taking a piece is one
compare-and-swap, and whoever finishes a phase's last piece opens the next phase.

Invariants
* a phase ends when its pieces are done, not when every thread has arrived: a helper that the machine keeps from running
  holds up at most the piece it took, and without helpers the caller does everything
* phases are numbered for ever, so a helper that comes late cannot take a piece of something it did not read about
* whoever waits inside a turn spins shortly and then yields; between turns helpers sleep in the kernel and wake nobody
"""

from __future__ import annotations

import platform

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 8
"""Words of 8 bytes to a cache line."""
TURN, STOP, TICKET, DONE = 0, 1, 1 * LINE, 2 * LINE
WORDS = 3 * LINE
"""The first words of a control block."""

_SHIFT = 24
_PIECES = (1 << _SHIFT) - 1
_SPINS = 2000
"""About 40 us of pauses."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()
_FUTEX = 98 if platform.machine() == "aarch64" else 202
_WAIT, _WAKE = 128, 129
"""FUTEX_WAIT and FUTEX_WAKE, private to the process."""


@intrinsic
def _load(typingctx, address):
    def codegen(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def _store(typingctx, address, value):
    def codegen(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], _I64.as_pointer()), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def _add(typingctx, address, value):
    """Gives the value before."""

    def codegen(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _swap(typingctx, address, expected, value):
    """Whether the word was as expected and is now the value."""

    def codegen(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        pair = builder.cmpxchg(pointer, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(pair, 1), _I64)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def _pause(typingctx):
    def codegen(context, builder, signature, arguments):
        hint = platform.machine() == "aarch64"
        kind = ir.FunctionType(ir.VoidType(), [_I32] if hint else [])
        name = "llvm.aarch64.hint" if hint else "llvm.x86.sse2.pause"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [_I32(1)] if hint else [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _yield(typingctx):
    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(_I32, [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _futex(typingctx, address, operation, value):
    """The kernel compares the word's lower half (little endian)."""

    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(_I64, [_I64], var_arg=True)
        syscall = cgutils.get_or_insert_function(builder.module, kind, "syscall")
        address, operation, value = arguments
        low = builder.and_(value, _I64(0xFFFFFFFF))
        builder.call(syscall, [_I64(_FUTEX), address, operation, low, _I64(0), _I64(0), _I64(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@njit
def begin(control, phases):
    """The caller opens a turn of so many phases; gives the number of its first one."""
    base = control.ctypes.data
    first = (_load(base + 8 * TURN) + 1) * phases
    _store(base + 8 * DONE, 0)
    _store(base + 8 * TICKET, first << _SHIFT)
    _add(base + 8 * TURN, 1)
    _futex(base + 8 * TURN, _WAKE, 1 << 30)
    return first


@njit
def sleep(control, seen):
    """A helper waits for a turn after `seen`; gives its number, or -1 when it shall end."""
    at = control.ctypes.data + 8 * TURN
    while True:
        turn = _load(at)
        if _load(at + 8 * (STOP - TURN)):
            return -1
        if turn != seen:
            return turn
        _futex(at, _WAIT, turn)


@njit
def end(control):
    """Sends the helpers home."""
    base = control.ctypes.data
    _store(base + 8 * STOP, 1)
    _add(base + 8 * TURN, 1)
    _futex(base + 8 * TURN, _WAKE, 1 << 30)


@njit
def take(control, phase, pieces):
    """The next piece of the phase, or -1 when none is left or the phase is over."""
    at = control.ctypes.data + 8 * TICKET
    while True:
        ticket = _load(at)
        piece = ticket & _PIECES
        if ticket >> _SHIFT != phase or piece >= pieces:
            return -1
        if _swap(at, ticket, ticket + 1):
            return piece


@njit
def finish(control, phase, pieces):
    """A piece that was taken is done; the last one opens the next phase."""
    base = control.ctypes.data
    if _add(base + 8 * DONE, 1) + 1 == pieces:
        _store(base + 8 * DONE, 0)
        _store(base + 8 * TICKET, (phase + 1) << _SHIFT)


@njit
def wait(control, phase):
    """Until the phase is over."""
    at = control.ctypes.data + 8 * TICKET
    spins = 0
    while _load(at) >> _SHIFT == phase:
        spins += 1
        if spins < _SPINS:
            _pause()
        else:
            _yield()
