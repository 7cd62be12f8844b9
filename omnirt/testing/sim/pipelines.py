"""Random pipelines: chains, fan-out, joins, untaken branches, loops, fused and split stages, one to three replicas."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from msgspec import UNSET

from omnirt.ids import CLIENT, Fence
from omnirt.pipeline.placement import place
from omnirt.pipeline.router import needed_stages, opened_edges
from omnirt.pipeline.spec import EdgeSpec, NodeSpec, PipelineSpec, StageSpec
from omnirt.runtime.stage import Stage
from omnirt.testing.sim.scripts import Script, Streams, evaluate
from omnirt.testing.sim.stages import FROM_CLIENT, is_whole, item, marks_of, stage_class, values_of
from omnirt.wire.payload import MODALITIES, Actions, Frames, Payload
from omnirt.wire.plan import LimitsPlan, RestartPlan

STEP_LIMIT_S = 1.0
LOAD_LIMIT_S = 8.0
DEADLINE_S = 120.0
Feed = tuple[str, str]
"""A stage and its port."""


class SimPipeline:
    """A plan, the classes of its stages, and what it must answer."""

    def __init__(self, spec: PipelineSpec, classes: dict[str, type[Stage]], scripts: dict[str, Script]) -> None:
        self.spec = spec
        self.plan = place(spec, classes, cores=8)
        self.classes = classes
        self.scripts = scripts
        self.lossy = frozenset(edge.to_port for edge in self.plan.edges if edge.overflow == "drop_oldest")
        """Outputs over a `drop_oldest` edge: some of the values, in order, the last one among them."""

    def expected(self, seed: int, inputs: Streams, opens: tuple[str, ...], outputs: tuple[str, ...]) -> Streams:
        """Output -> values, for a request that gave `inputs` (modality -> values) of the modalities it `opens`."""
        needed = needed_stages(self.plan, opens, outputs)
        streams: dict[Feed, list[int]] = {(CLIENT, name): list(inputs.get(name, [])) for name in self.plan.inputs}
        feeds = {(edge.target, edge.to_port): (edge.source, edge.port) for edge in self.plan.edges}
        for stage in self.plan.stages:
            script = self.scripts[stage.name]
            if script.kind != "guide" and stage.name in needed:
                taken = {port: streams.get(feeds[stage.name, port], []) for port in script.ins}
                for port, values in evaluate(script, seed, taken).items():
                    streams[stage.name, port] = values
        ends = [edge for edge in self.plan.edges if edge.target == CLIENT and edge.source in needed]
        return {edge.to_port: streams[edge.source, edge.port] for edge in ends}

    def payload(self, tag: int, modality: str, values: list[int]) -> Payload:
        return item(MODALITIES[modality], tag, FROM_CLIENT, values, 4 if tag % 2 else 12)

    def draw_inputs(
        self, random: Random, opens: tuple[str, ...], outputs: tuple[str, ...]
    ) -> list[tuple[str, tuple[int, ...]]]:
        """(modality, values) in the order a client gives them."""
        taken = [edge.port for edge in opened_edges(self.plan, opens, outputs) if edge.source == CLIENT]
        if not taken:
            return []
        return [
            (random.choice(taken), tuple(random.getrandbits(32) for _ in range(random.choice((1, 1, 2, 3)))))
            for _ in range(random.choice((0, 1, 3, 6, 12)))
        ]

    def problems(self, payload: Any, tag: int, fence: Fence | None) -> list[str]:
        """What is wrong with an output of a request that runs under `fence` (None: it has ended)."""
        found = ["a payload that was overwritten"] if not is_whole(payload) else []
        for tag_said, epoch in sorted(marks_of(payload)):
            if tag_said != tag:
                found.append("a payload of another request")
            elif fence is not None and epoch not in (FROM_CLIENT, fence.epoch):
                found.append(f"a payload of epoch {epoch} in epoch {fence.epoch}")
        return found

    def values(self, payload: Any) -> list[int]:
        return values_of(payload)


class _Builder:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.stages: list[StageSpec] = []
        self.edges: list[EdgeSpec] = []
        self.scripts: dict[str, Script] = {}
        self.kinds: dict[Feed, type[Payload]] = {(CLIENT, "actions"): Actions}
        self.says: dict[str, type[Payload]] = {}
        self.feeds: list[Feed] = [(CLIENT, "actions")]
        self.groups = [f"g{n}" for n in range(random.randint(1, 4))]

    def stage(self, kind: str, ins: tuple[str, ...], outs: tuple[str, ...], says: type[Payload], **values: Any) -> str:
        random = self.random
        name = f"s{len(self.stages)}{kind}"
        values.setdefault("tail", random.random() < 0.5)
        self.scripts[name] = Script(name, kind, ins, outs, random.getrandbits(31), random.choice((1, 12, 16)), **values)
        self.says[name] = says
        self.kinds.update({(name, port): says for port in outs})
        self.stages.append(
            StageSpec(
                name=name, actor=name, node=random.choice(self.groups), batch=random.choice((1, 2, 4, 8)),
                step_limit_s=STEP_LIMIT_S, load_limit_s=LOAD_LIMIT_S,
            )
        )  # fmt: skip
        return name

    def classes(self) -> dict[str, type[Stage]]:
        pure = self.random.random() < 0.9
        feeds = {edge.to: edge.source for edge in self.edges}
        classes: dict[str, type[Stage]] = {}
        for name, script in self.scripts.items():
            takes: dict[str, type[Payload]] = {}
            for port in script.ins:
                source, _, source_port = feeds[f"{name}.{port}"].partition(".")
                takes[port] = self.kinds[source, source_port]
            classes[name] = stage_class(script, pure or self.random.random() < 0.7, takes, self.says[name])
        return classes

    def edge(self, source: Feed, target: Feed, **values: Any) -> None:
        values.setdefault("credit", self.random.choice((1, 2, 3, 4, 8)))
        self.edges.append(EdgeSpec(source=".".join(source), to=".".join(target), **values))

    def grow(self) -> None:
        """One more stage (two or three for a loop), fed by what there is."""
        random = self.random
        kinds = ["map", "map", "route", "vary", "relay", "engine", "engine", "loop"]
        if len(self.feeds) > 1:
            kinds += ["join", "join"]
        kind = random.choice(kinds)
        if kind == "loop":
            self.loop()
            return
        count = random.randint(2, min(3, len(self.feeds))) if kind == "join" else 1
        if kind == "engine" and len(self.feeds) > 1 and random.random() < 0.3:
            count = 2
        sources = random.sample(self.feeds[-4:], min(count, len(self.feeds[-4:])))
        ins = tuple(f"i{n}" for n in range(len(sources)))
        outs = ("o0", "o1", "o2")[: random.randint(2, 3) if kind == "route" else random.randint(1, 2)]
        stop = random.randint(1, 4) if kind == "engine" and random.random() < 0.3 else 0
        says = self.kinds[sources[0]] if kind == "relay" else random.choice((Actions, Frames))
        extra = {"tail": False} if kind == "relay" else {}
        name = self.stage(kind, ins, outs, says, stop_after=stop, **extra)
        for source, port in zip(sources, ins, strict=True):
            stream = UNSET if random.random() < 0.85 else False
            self.edge(source, (name, port), stream=stream)
        self.feeds += [(name, port) for port in outs]

    def loop(self) -> None:
        random = self.random
        source = random.choice(self.feeds[-3:])
        guides = [self.stage("guide", ("in",), ("out",), Actions, tail=False) for _ in range(random.randint(1, 2))]
        salts = tuple(self.scripts[name].salt for name in guides)
        owner = self.stage("loop", ("n", "a"), ("ask", "res"), Actions, guides=salts)
        self.edge(source, (owner, "n"))
        way = [(owner, "ask"), *((name, "out") for name in guides)]
        ends = [*((name, "in") for name in guides), (owner, "a")]
        for place_, (a, b) in enumerate(zip(way, ends, strict=True)):
            self.edge(a, b, window=random.randint(1, 4) if place_ == 0 else UNSET)
        self.feeds.append((owner, "res"))

    def finals(self) -> tuple[str, ...]:
        """The last stage gives an output, and perhaps another one does; the payload decides the modality."""
        random = self.random
        last = self.feeds[-1]
        others = [feed for feed in self.feeds if feed[0] not in (last[0], CLIENT)]
        chosen = [last] + ([random.choice(others)] if others and random.random() < 0.5 else [])
        outputs: list[str] = []
        for feed in chosen:
            free = [name for name in _OUTPUTS[self.kinds[feed]] if name not in outputs]
            if free:
                outputs.append(free[0])
                self.final(feed, free[0])
        return tuple(outputs)

    def final(self, feed: Feed, modality: str) -> None:
        index = next(i for i, stage in enumerate(self.stages) if stage.name == feed[0])
        self.stages[index] = msgspec.structs.replace(self.stages[index], final=modality)
        overflow = "drop_oldest" if self.random.random() < 0.15 else UNSET
        self.edge(feed, (CLIENT, modality), overflow=overflow)


_OUTPUTS: dict[type[Payload], tuple[str, ...]] = {Actions: ("actions",), Frames: ("image", "video")}


def generated(random: Random, shape: str = "", is_fragile: bool = False) -> SimPipeline:
    """`shape`: "" for anything, "chain" for one stage after another. A fragile one is given up after one restart."""
    builder = _Builder(random)
    if random.random() < 0.3 and not shape:
        builder.feeds.append((CLIENT, "image"))
        builder.kinds[CLIENT, "image"] = Frames
    for _ in range(random.randint(1, 5)):
        if shape == "chain":
            feed = builder.feeds[-1]
            name = builder.stage(random.choice(("map", "engine")), ("i0",), ("o0",), Actions)
            builder.edge(feed, (name, "i0"))
            builder.feeds.append((name, "o0"))
        else:
            builder.grow()
    outputs = builder.finals()
    ends = [edge.source.partition(".") for edge in builder.edges]
    inputs = tuple(dict.fromkeys(port for stage, _, port in ends if stage == CLIENT))
    spec = PipelineSpec(
        name="sim",
        inputs=inputs,
        outputs=outputs,
        stage=tuple(builder.stages),
        edge=tuple(builder.edges),
        node={group: NodeSpec(replicas=random.choice((1, 1, 2, 2, 3))) for group in _used(builder.stages)},
        limits=LimitsPlan(
            requests_max=random.choice((1, 2, 2, 3, 4, 6)),
            queue_max=random.choice((0, 2, 8, 32)),
            deadline_s=DEADLINE_S,
        ),
        restart=RestartPlan(intensity=1 if is_fragile else 60, backoff_max_s=1.0),
    )
    return SimPipeline(spec, builder.classes(), builder.scripts)


def _used(stages: list[StageSpec]) -> list[str]:
    return list(dict.fromkeys(stage.group for stage in stages))
