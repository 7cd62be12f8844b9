"""Simulated clients. They use the production `LiveRequest`; what they are given is checked as it comes.

arrives -> submits -> (gives more input, now and then) -> reads, thinks, reads ... -> the end
           refused                 or stops reading, or leaves, or cancels by its public id
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omnirt.errors import Cancelled, NotReady, OmnirtError, Overloaded
from omnirt.session.service import Done, Failed, Output, Submit
from omnirt.testing.sim.clock import SimLoop
from omnirt.testing.sim.ground import Ground
from omnirt.testing.sim.scenario import ClientPlan

PROBE = 1_000_000
"""Tags of the requests that ask, at the end, whether everything works again."""
HANGS_ON_NS = 150_000_000_000
"""When a client that stopped reading hangs up: after every deadline."""


class Client:
    def __init__(self, plan: ClientPlan, pipeline: Any, ground: Ground, head: Any, loop: SimLoop) -> None:
        self.plan = plan
        self.got: dict[str, list[Any]] = {name: [] for name in plan.outputs}
        self.given: dict[str, list[int]] = {}
        self.refusal: OmnirtError | None = None
        self.outcome: Done | Failed | None = None
        """The event that ended it."""
        self.endings = 0
        """Times the head said that it ended."""
        self.ended_ns = 0
        self.machine: Any = None
        self.entry: Any = None
        self.is_probe = plan.tag >= PROBE
        self.is_over = False
        """Nothing more will happen here."""
        self.left = False
        self.cancelled = False
        self.started_ns = 0
        self._pipeline = pipeline
        self._ground = ground
        self._head = head
        self._loop = loop
        self._live: Any = None
        self._reading: Any = None
        self._reads = 0

    def _later(self, delay_ns: int, callback: Callable[[], None]) -> None:
        """In a turn of the head's loop, where everything happens that a client asks for."""
        self._ground.clock.after(delay_ns, lambda: self._loop.call_soon(callback))

    # ------------------------------------------------------------ submitting

    def arrives(self, in_ns: int) -> None:
        self._later(in_ns, self.arrive)

    def arrive(self) -> None:
        plan = self.plan
        self.started_ns = self._ground.clock.now_ns()
        for modality, values in plan.inputs:
            self.given.setdefault(modality, []).extend(values)
        try:
            self._live = self._head.submit(self._submit())
        except (NotReady, Overloaded) as error:
            self.refusal = error
            self.is_over = True
            self._ground.observer.count("refused")
            return
        self._ground.observer.count("accepted")
        self._head.note_entry(self)
        self._read()
        if plan.is_open:
            self._give(list(plan.later))
        if plan.leaves_ns >= 0:
            self._later(plan.leaves_ns, self.leave)
        if plan.cancels_ns >= 0:
            self._later(plan.cancels_ns, self._cancel)

    def _submit(self) -> Submit:
        plan = self.plan
        params: dict[str, Any] = {"tag": plan.tag, "lives": plan.lives}
        params |= {name: value for name in ("poison", "killer", "device") if (value := getattr(plan, name))}
        return Submit(
            inputs=tuple((name, self._pipeline.payload(plan.tag, name, values)) for name, values in plan.inputs),
            outputs=plan.outputs,
            params=params,
            seed=plan.seed,
            deadline_s=plan.deadline_s,
            public_id=plan.public_id,
            affinity=plan.affinity,
            input_open=plan.is_open,
            later=plan.opens,
        )

    def _give(self, chunks: list[tuple[int, str, tuple[int, ...]]]) -> None:
        """The rest of the input, chunk by chunk, then its end."""
        if self.is_over:
            return
        if not chunks:
            self._extend(None)
            return
        delay_ns, modality, values = chunks[0]

        def give() -> None:
            if not self.is_over and self._extend((modality, values)):
                self._give(chunks[1:])

        self._later(delay_ns, give)

    def _extend(self, chunk: tuple[str, tuple[int, ...]] | None) -> bool:
        """More input, or its end. False when it was refused, as it must be once the request is over."""
        try:
            if chunk is None:
                self._live.end_input()
            else:
                self._live.extend(chunk[0], self._pipeline.payload(self.plan.tag, *chunk))
        except Cancelled:
            return False
        if chunk is not None:
            self.given.setdefault(chunk[0], []).extend(chunk[1])
        return True

    # ------------------------------------------------------------ reading

    def _read(self) -> None:
        if self.is_over:
            return
        if self._reads == self.plan.stops_reading_after:
            self._later(HANGS_ON_NS, self.leave)
            return
        self._reads += 1
        self._reading = self._live.next()
        self._loop.drive(self._reading, self._event)

    def _event(self, event: Any) -> None:
        if self.is_over:
            return
        if isinstance(event, Output):
            self._look(event)
            self._later(self.plan.read_ns, self._read)
            return
        self.outcome = event
        if self.plan.late_extend and self._extend((self._pipeline.plan.inputs[0], (1,))):
            self._ground.observer.wrong("late", f"request {self.plan.tag} took input after its end")
        self._hang_up()

    def _look(self, output: Output) -> None:
        """The last check: nothing foreign, stale or overwritten reaches a client."""
        observer = self._ground.observer
        observer.count("outputs")
        for problem in self._pipeline.problems(output.payload, self.plan.tag, self.entry.fence):
            observer.wrong("client", f"request {self.plan.tag} was given {problem}")
        self.got[output.modality] += self._pipeline.values(output.payload)
        observer.note(f"client {self.plan.tag} {output.modality} {len(self.got[output.modality])}")

    # ------------------------------------------------------------ leaving

    def leave(self) -> None:
        if not self.is_over:
            self.left = True
            if self._reading is not None:
                self._reading.close()
            self._hang_up()

    def _hang_up(self) -> None:
        self.is_over = True
        self._loop.drive(self._live.__aexit__(None, None, None), lambda _: None)

    def _cancel(self) -> None:
        self.cancelled = True
        said = self._head.cancel(self.plan.public_id)
        if said not in ("cancelled", "finished", "unknown"):
            self._ground.observer.wrong("cancel", f"cancelling said {said!r}")
