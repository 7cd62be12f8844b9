"""What a simulated stage computes, as plain functions: used by the stages one chunk at a time, and by `evaluate` over
whole streams, which says what a request must answer whatever the placement, the timing and the batch mates.

Values are 32-bit integers; what a stage says depends on the request's seed, its own salt and the values, never on when
they came.
"""

from __future__ import annotations

from msgspec import Struct

Streams = dict[str, list[int]]
LOW = 0xFFFF_FFFF


def mix(a: int, b: int) -> int:
    x = (a * 0x9E3779B1 + b * 0x85EBCA77 + 0x165667B1) & LOW
    x ^= x >> 15
    x = x * 0x2C1B3C6D & LOW
    return x ^ x >> 13


class Script(Struct, frozen=True):
    """kind: `map` (one for one, to every port), `route` (each to one port), `vary` (none to two each), `relay` (the same
    payload on), `join` (one for one across its ports), `engine` (one a step, perhaps after thinking), `loop` (each
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
    copies = [(port, mix(key, value) >> index & 1 if script.kind == "vary" else 1) for index, port in enumerate(script.outs)]
    if script.kind == "vary" and mix(key, value) % 5 == 0:
        copies = [(port, count * 2) for port, count in copies]
    return [(port, mix(key + 2 + n, value)) for port, count in copies for n in range(count)]


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
    outs: Streams = {port: [] for port in script.outs}
    counts = [len(inputs[port]) for port in script.ins]
    main = inputs[script.ins[0]]
    if script.kind == "relay":
        for port in outs:
            outs[port] = list(main)
    elif script.kind in ("map", "route", "vary"):
        for value in main:
            for port, said in spread(script, seed, value):
                outs[port].append(said)
    elif script.kind == "join":
        for values in zip(*(inputs[port] for port in script.ins), strict=False):
            for port in outs:
                outs[port].append(paired(script, seed, list(values)))
    elif script.kind == "engine":
        said = [spoken(script, seed, value) for value in main]
        if script.stop_after and len(said) >= script.stop_after:
            return {port: said[: script.stop_after] for port in outs}
        outs = {port: list(said) for port in outs}
    elif script.kind == "loop":
        outs = {"res": [_walked(script, seed, value) for value in main]}
        counts = counts[:1]
    if script.tail:
        outs["res" if script.kind == "loop" else script.outs[0]].append(last_word(script, seed, counts))
    return outs


def _walked(script: Script, seed: int, start: int) -> int:
    value = start
    for _ in range(rounds_of(script, start)):
        for salt in script.guides:
            value = guided(salt, value)
    return spoken(script, seed, value)
