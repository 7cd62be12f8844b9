"""What happens in one world, drawn from its seed before it begins: pipeline, delays, clients, faults."""

from __future__ import annotations

from random import Random

import msgspec
from msgspec import Struct

from omnirt.errors import Unsupported
from omnirt.pipeline.router import needed_stages
from omnirt.testing.faults import BadLoad, Fault, FaultKind, FaultPoint, LoadFault
from omnirt.testing.sim.ground import MS, US, Delays
from omnirt.testing.sim.packaged import packaged
from omnirt.testing.sim.pipelines import SimPipeline, generated
from omnirt.wire.plan import Plan

S = 1_000_000_000
Chunks = tuple[tuple[str, tuple[int, ...]], ...]


class ClientPlan(Struct, frozen=True):
    """One request. Times are after its arrival; -1 means never."""

    tag: int
    at_ns: int
    opens: tuple[str, ...]
    """Modalities it may give; stages that none of them leads to take no part."""
    outputs: tuple[str, ...]
    inputs: Chunks
    seed: int
    public_id: str
    later: tuple[tuple[int, str, tuple[int, ...]], ...] = ()
    """Chunks given while it runs, each this long after the one before."""
    is_open: bool = False
    late_extend: bool = False
    """Tries to give more after its end."""
    read_ns: int = 0
    """How long it thinks over each output."""
    stops_reading_after: int = -1
    leaves_ns: int = -1
    """It disconnects."""
    cancels_ns: int = -1
    """It cancels by its public id."""
    deadline_s: float | None = None
    affinity: str = ""
    poison: str = ""
    """A stage that raises for it."""
    killer: str = ""
    """A stage whose process dies with it in its step, `lives` times."""
    device: str = ""
    """A stage whose device is lost with it in its step, `lives` times."""
    lives: int = 0


class Scenario(Struct, frozen=True):
    seed: int
    pipeline: SimPipeline
    delays: Delays
    clients: tuple[ClientPlan, ...]
    faults: tuple[Fault, ...]
    bad_loads: tuple[BadLoad, ...]
    crossings: int
    """How many times a node dies just when another one sends the first output of a request they share."""
    drain_ns: int = -1
    """When the head is told to stop, after all nodes were up; -1: at the end."""


def drawn(seed: int, shape: str = "") -> Scenario:
    random = Random(f"{seed}/scenario")
    is_fragile = not shape and random.random() < 0.06
    pipeline = generated(random, shape, is_fragile) if shape or random.random() < 0.85 else packaged(random)
    delays = Delays(
        control_ns=random.choice((2 * US, 50 * US, MS, 5 * MS)),
        data_ns=random.choice((2 * US, 50 * US, MS)),
        step_ns=random.choice((100 * US, MS, 5 * MS)),
        load_ns=random.choice((20 * MS, 300 * MS)),
        head_ns=random.choice((2 * US, 50 * US, 2 * MS)),
    )
    span_ns = random.choice((200 * MS, S, 3 * S))
    clients = tuple(_client(random, tag, pipeline, span_ns) for tag in range(1, random.randint(4, 22)))
    if not shape and random.random() < 0.25:
        clients = _storm(random, pipeline, clients)
        delays = msgspec.structs.replace(delays, head_ns=5 * MS, control_ns=5 * MS, step_ns=5 * MS)
    calm = shape == "chain" or random.random() < 0.15
    drains = not shape and random.random() < 0.1
    return Scenario(
        seed=seed,
        pipeline=pipeline,
        delays=delays,
        clients=clients,
        faults=() if calm else _faults(random, pipeline, span_ns) * (3 if is_fragile else 1),
        bad_loads=() if calm else _bad_loads(random, pipeline),
        crossings=0 if calm else random.choice((0, 0, 2, 4)),
        drain_ns=random.randrange(span_ns) if drains else -1,
    )


def _opens(random: Random, plan: Plan, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Some of the inputs, or all of them when those do not lead to every output."""
    some = tuple(name for name in plan.inputs if random.random() < 0.6)
    try:
        needed_stages(plan, some, outputs)
    except Unsupported:
        return plan.inputs
    return some


def _client(random: Random, tag: int, pipeline: SimPipeline, span_ns: int) -> ClientPlan:
    plan = pipeline.plan
    outputs = tuple(name for name in plan.outputs if random.random() < 0.6) or (random.choice(plan.outputs),)
    opens = _opens(random, plan, outputs)
    chunks = pipeline.draw_inputs(random, opens, outputs)
    given = random.randint(0, len(chunks)) if random.random() < 0.4 else len(chunks)
    is_open = given < len(chunks) or random.random() < 0.1
    gap_ns = random.choice((10 * US, MS, 30 * MS))
    stages = [stage.name for stage in plan.stages]
    odd = {"poison": "", "killer": "", "device": "", "lives": 0}
    if random.random() < 0.12 and pipeline.classes:
        odd[random.choice(("poison", "killer", "device"))] = random.choice(stages)
        odd["lives"] = random.randint(1, 3)
    rude = random.random()
    return ClientPlan(
        tag=tag,
        at_ns=random.randrange(span_ns),
        opens=opens,
        outputs=outputs,
        inputs=tuple(chunks[:given]),
        seed=random.getrandbits(31),
        public_id=f"r{random.randint(1, 6) if random.random() < 0.2 else tag}",
        later=tuple((random.randrange(2 * gap_ns), modality, values) for modality, values in chunks[given:]),
        is_open=is_open,
        late_extend=random.random() < 0.15,
        read_ns=random.choice((0, 0, 100 * US, 5 * MS, 100 * MS)),
        stops_reading_after=random.randint(0, 3) if rude < 0.08 else -1,
        leaves_ns=random.randrange(span_ns) if 0.08 <= rude < 0.2 else -1,
        cancels_ns=random.randrange(span_ns) if 0.2 <= rude < 0.25 else -1,
        deadline_s=20.0 if rude < 0.08 else random.choice((0.001, 0.05, 0.3)) if 0.25 <= rude < 0.3 else None,
        affinity=random.choice(("a", "b")) if random.random() < 0.2 else "",
        **odd,  # type: ignore[arg-type]
    )


def _storm(random: Random, pipeline: SimPipeline, clients: tuple[ClientPlan, ...]) -> tuple[ClientPlan, ...]:
    """More than there are places for, who come at once, speak large chunks, and mostly leave again soon."""
    again = tuple(_client(random, tag + 100, pipeline, 1) for tag in range(random.randint(10, 40)))
    return tuple(
        msgspec.structs.replace(
            plan,
            at_ns=random.randrange(100 * MS),
            leaves_ns=random.randrange(60 * MS) if random.random() < 0.7 else -1,
            public_id=f"r{plan.tag}",
        )
        for plan in clients + again
    )


def _faults(random: Random, pipeline: SimPipeline, span_ns: int) -> tuple[Fault, ...]:
    nodes = [node.name for node in pipeline.plan.nodes]
    kinds = (FaultKind.CRASH, FaultKind.CRASH, FaultKind.HANG, FaultKind.PAUSE, FaultKind.DEAF)
    return tuple(
        Fault(
            at_ns=random.randrange(span_ns * 3 // 2),
            node=random.choice(nodes),
            kind=random.choice(kinds),
            point=random.choice(tuple(FaultPoint)),
            for_ns=random.randrange(400 * MS),
        )
        for _ in range(random.randint(0, 5))
    )


def _bad_loads(random: Random, pipeline: SimPipeline) -> tuple[BadLoad, ...]:
    """Never the first load: what fails then is a mistake to show, and ends the start."""
    nodes = [node.name for node in pipeline.plan.nodes]
    return tuple(
        BadLoad(random.choice(nodes), random.randint(2, 3), random.choice(tuple(LoadFault)))
        for _ in range(random.randint(0, 2))
    )
