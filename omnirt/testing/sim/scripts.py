"""What a simulated stage computes, as plain functions: used by the stages one chunk at a time, and by `evaluate` over
whole streams, which says what a request must answer whatever the placement, the timing and the batch mates.

Values are 32-bit integers; what a stage says depends on the request's seed, its own salt and the values, never on when
they came.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

Streams = dict[str, list[int]]
LOW = 0xFFFF_FFFF


def mix(a: int, b: int) -> int:
    x = (a * 0x9E3779B1 + b * 0x85EBCA77 + 0x165667B1) & LOW
    x ^= x >> 15
    x = x * 0x2C1B3C6D & LOW
    return x ^ x >> 13


class Script(Struct, frozen=True):
    """kind: `map` (one for one, to every port), `route` (each to one port), `vary` (none to two each), `relay` (the
    same payload on), `join` (one for one across its ports), `engine` (one a step, perhaps after thinking), `loop` (each
    goes round `guide` stages a few times) and `guide`."""

    name: str
    kind: str
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    salt: int
    width: int
    """Columns of each emitted row."""
    tail: bool = False
    """Whether it has a last word when its input is over."""
    stop_after: int = 0
    """Engines: how many it says at most; what comes after is not read."""
    guides: tuple[int, ...] = ()
    """Loops: the salts of the guides on the way round."""


def spread(script: Script, seed: int, value: int) -> list[tuple[str, int]]:
    """What one value becomes at a map, a route or a vary."""
    key = mix(script.salt, seed)
    if script.kind == "route":
        port = script.outs[mix(key, value) % len(script.outs)]
        return [(port, mix(key + 1, value))]
    counts = [1] * len(script.outs)
    if script.kind == "vary":
        bits = mix(key, value)
        counts = [(bits >> index & 1) * (2 if bits % 5 == 0 else 1) for index in range(len(script.outs))]
    return [
        (port, mix(key + 2 + n, value)) for port, count in zip(script.outs, counts, strict=True) for n in range(count)
    ]


def paired(script: Script, seed: int, values: list[int]) -> int:
    joint = mix(script.salt, seed)
    for value in values:
        joint = mix(joint, value)
    return joint


def spoken(script: Script, seed: int, value: int) -> int:
    return mix(mix(script.salt, seed), value)


def thinking_steps(script: Script, value: int) -> int:
    return mix(script.salt + 7, value) % 3


def rounds_of(script: Script, value: int) -> int:
    return mix(script.salt + 11, value) % 4


def guided(salt: int, value: int) -> int:
    return mix(salt, value)


def last_word(script: Script, seed: int, counts: list[int]) -> int:
    word = mix(script.salt + 13, seed)
    for count in counts:
        word = mix(word, count)
    return word


def evaluate(script: Script, seed: int, inputs: Streams) -> Streams:
    """Everything a stage says to complete inputs, in order."""
    outs = _SAYS[script.kind](script, seed, inputs)
    counts = [len(inputs[port]) for port in script.ins]
    main = "res" if script.kind == "loop" else script.outs[0]
    if script.tail and not (script.stop_after and len(outs[main]) == script.stop_after):
        outs[main].append(last_word(script, seed, counts[:1] if script.kind == "loop" else counts))
    return outs


def _say_each(script: Script, seed: int, inputs: Streams) -> Streams:
    outs: Streams = {port: [] for port in script.outs}
    for value in inputs[script.ins[0]]:
        for port, said in spread(script, seed, value):
            outs[port].append(said)
    return outs


def _say_same(script: Script, seed: int, inputs: Streams) -> Streams:
    return {port: list(inputs[script.ins[0]]) for port in script.outs}


def _say_pairs(script: Script, seed: int, inputs: Streams) -> Streams:
    columns = zip(*(inputs[port] for port in script.ins), strict=False)
    said = [paired(script, seed, list(values)) for values in columns]
    return {port: list(said) for port in script.outs}


def _say_slowly(script: Script, seed: int, inputs: Streams) -> Streams:
    said = [spoken(script, seed, value) for value in inputs[script.ins[0]]][: script.stop_after or None]
    return {port: list(said) for port in script.outs}


def _say_walked(script: Script, seed: int, inputs: Streams) -> Streams:
    return {"res": [_walked(script, seed, value) for value in inputs["n"]]}


_SAYS: dict[str, Callable[[Script, int, Streams], Streams]] = {
    "map": _say_each, "route": _say_each, "vary": _say_each, "relay": _say_same, "join": _say_pairs,
    "engine": _say_slowly, "loop": _say_walked,
}  # fmt: skip


def _walked(script: Script, seed: int, start: int) -> int:
    value = start
    for _ in range(rounds_of(script, start)):
        for salt in script.guides:
            value = guided(salt, value)
    return spoken(script, seed, value)
