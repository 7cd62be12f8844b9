"""What a step leaves: input released once, and what was emitted out of it kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omnirt.ids import Fence
from omnirt.runtime.credit import InEdge
from omnirt.runtime.outcome import Outcome
from omnirt.runtime.row import Arrived, Row
from omnirt.runtime.stage import Chunk, Emission
from omnirt.wire.messages import Open
from omnirt.wire.payload import Latents, Payload, owned
from omnirt.wire.plan import EdgePlan


class Body:
    """A lease on an array that others overwrite once it is released."""

    def __init__(self, array: np.ndarray) -> None:
        self.payload = Latents(array)
        self.released = 0

    def release(self) -> None:
        self.released += 1
        self.payload.latents[:] = -1


def make_outcome(body: Any) -> Outcome:
    row = Row(Open("s", 1, Fence(0, 1), 0, 0, "r", {}, {}, {}), (), False, 0)
    outcome = Outcome(row)
    payload = body if isinstance(body, Payload) else body.payload
    outcome.used.append(Arrived(InEdge(EdgePlan(0, "a", "x", "s", "x"), "a"), 0, body))
    outcome.chunks.append(Chunk(row.request, "x", payload, 0))
    return outcome


@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(None, None, 2)])
def test_what_was_emitted_out_of_the_input_survives_its_release(part: slice) -> None:
    body = Body(np.arange(4))
    outcome = make_outcome(body)
    emission = Emission(outcome.row.request, "y", Latents(body.payload.latents[part]))
    outcome.emissions.append(emission)
    outcome.emissions.append(Emission(outcome.row.request, "y", None))
    outcome.release()
    assert body.released == 1
    assert isinstance(emission.payload, Latents)
    assert emission.payload.latents.tolist() == np.arange(4)[part].tolist()


def test_what_has_memory_of_its_own_is_not_copied() -> None:
    outcome = make_outcome(Body(np.arange(4)))
    payload = Latents(np.arange(9))
    emission = Emission(outcome.row.request, "y", payload)
    outcome.emissions.append(emission)
    outcome.release()
    assert emission.payload is payload


def test_a_payload_handed_over_in_process_is_passed_on_as_it_is() -> None:
    payload = Latents(np.arange(4))
    outcome = make_outcome(payload)
    emission = Emission(outcome.row.request, "y", payload)
    outcome.emissions.append(emission)
    outcome.release()
    assert emission.payload is payload


def test_a_tensor_that_lies_in_borrowed_memory_is_cloned() -> None:
    class Device:
        type = "cpu"

    class Tensor:
        """The part of a torch tensor that is looked at."""

        device = Device()

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def data_ptr(self) -> int:
            return self.array.ctypes.data

        def detach(self) -> Tensor:
            return self

        def numpy(self) -> np.ndarray:
            return self.array

        def clone(self) -> Tensor:
            return Tensor(self.array.copy())

    memory = np.arange(4)
    payload = Latents(Tensor(memory))  # type: ignore[arg-type]
    kept = owned(payload, [memory])
    memory[:] = -1
    assert kept.latents.array.tolist() == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert owned(payload, [np.arange(4)]) is payload
