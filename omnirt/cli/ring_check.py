"""Two processes, one pair of rings, a record to and fro: does shared memory work here, and how fast does it wake?

The other process runs `echo` under the same interpreter, with the descriptors handed down; both sides sleep between
records, as nodes do.
"""

from __future__ import annotations

import select
import statistics
import subprocess
import sys

from omnirt.clock import monotonic_ns
from omnirt.connectors.base import Received
from omnirt.connectors.ring import RingLink, RingPair
from omnirt.errors import OmnirtError
from omnirt.ids import Fence
from omnirt.wire.messages import Attach, End, Record, decode_to_node, encode
from omnirt.wire.plan import LinkPlan

ROUNDS = 300
WAIT_S = 20.0
"""For the other process to start, and for each answer."""

_CHILD = "import sys; from omnirt.cli.ring_check import echo; echo(sys.argv[1:])"


def one_way_us(rounds: int = ROUNDS) -> float:
    """Half the median round trip. Raises OmnirtError when no answer comes."""
    pair = RingPair.create(LinkPlan("here", "there", ring_bytes=1 << 16))
    message, fds = pair.side("there")
    arguments = [sys.executable, "-P", "-c", _CHILD, encode(message).hex(), *map(str, fds)]
    child = subprocess.Popen(arguments, pass_fds=fds, stdin=subprocess.DEVNULL)
    link = pair.link("here")
    pair.close()
    try:
        trips = [_round_trip(link, number) for number in range(rounds)]
        link.send(_record(-1))
        child.wait(WAIT_S)
    finally:
        child.kill()
        child.wait()
        link.close()
    return statistics.median(trips[rounds // 10 :]) / 2000


def echo(arguments: list[str]) -> None:
    """The other process: send every record back, until one says -1."""
    message = decode_to_node(bytes.fromhex(arguments[0]))
    assert isinstance(message, Attach)
    link = RingLink.attach(message, [int(fd) for fd in arguments[1:]])
    while (record := _receive(link)).count >= 0:
        link.send(record)


def _round_trip(link: RingLink, number: int) -> int:
    started_ns = monotonic_ns()
    link.send(_record(number))
    if _receive(link).count != number:
        raise OmnirtError("the ring answered something else than what was sent")
    return monotonic_ns() - started_ns


def _record(number: int) -> End:
    return End(0, 1, Fence(0, 1), number)


def _receive(link: RingLink) -> End:
    """Sleep until the next record. Raises OmnirtError after WAIT_S."""
    arrived: list[Record] = []

    def deliver(record: Record, _: Received | None) -> None:
        arrived.append(record)

    while not arrived:
        if not select.select([link.fileno()], [], [], WAIT_S)[0]:
            raise OmnirtError(f"no record came through the ring within {WAIT_S:g} s")
        link.pump(deliver)
    (record,) = arrived
    assert isinstance(record, End)
    return record
