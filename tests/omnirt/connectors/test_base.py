from __future__ import annotations

import numpy as np
import pytest

from omnirt.connectors.base import (
    LinkBroken,
    LinkClosed,
    LinkError,
    LinkFull,
    Occupancy,
    PayloadTooLarge,
    Received,
    link_figures,
)
from omnirt.errors import OmnirtError
from omnirt.wire.codec import Packing
from omnirt.wire.payload import Latents


def received(values: np.ndarray) -> Received:
    packing = Packing(Latents(values))
    body = np.zeros(packing.nbytes, np.uint8)
    packing.write(body)
    return Received(packing.header, body.tobytes())


@pytest.mark.parametrize("kind", [LinkFull, LinkClosed, LinkBroken])
def test_every_link_error_names_its_peer(kind: type[LinkError]) -> None:
    error = kind("gone", peer="speech.0")
    assert isinstance(error, OmnirtError)
    assert error.peer == "speech.0"
    assert error.failure().code == kind.code


def test_a_payload_too_large_says_which_edge_and_what_to_change() -> None:
    error = PayloadTooLarge(peer="speech.0", edge=3, nbytes=2000, limit_bytes=1000)
    for part in ("edge 3", "speech.0", "2000 bytes", "1000 bytes", "chunk_bytes_max"):
        assert part in error.message


def test_a_small_payload_is_its_own_memory_and_releasing_it_changes_nothing() -> None:
    arrival = received(np.arange(5, dtype=np.int32))
    arrays = [arrival.unpack(Latents).latents]
    arrival.release()
    arrival.release()
    arrays.append(arrival.unpack(Latents).latents)
    for array in arrays:
        assert array.tolist() == [0, 1, 2, 3, 4]
        assert not array.flags.writeable
    assert arrival.nbytes == len(arrival.body) == 64


def test_a_body_that_is_taken_over_outlives_its_lease() -> None:
    class Lease:
        released = 0

        def release(self) -> None:
            self.released += 1

    packing = Packing(Latents(np.arange(100)))
    slot = np.zeros(packing.nbytes, np.uint8)
    packing.write(slot)
    lease = Lease()
    arrival = Received(packing.header, memoryview(slot), lease)  # type: ignore[arg-type]
    arrival.own()
    arrival.own()
    slot[:] = 0xA5  # as the next payload in it would
    assert lease.released == 1
    assert arrival.unpack(Latents).latents.tolist() == list(range(100))


def test_the_figures_of_links_carry_the_name_of_the_peer() -> None:
    class Half:
        def occupancy(self) -> Occupancy:
            return Occupancy(5, 10, 1, 2, 0, 0)

    figures = link_figures({"tts.0": Half(), "head": Half()})  # type: ignore[dict-item]
    assert figures["link.tts.0.out_bytes"] == figures["link.head.out_bytes"] == 5
    assert len(figures) == 12
