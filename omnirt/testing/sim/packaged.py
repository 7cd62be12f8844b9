"""The packaged pipelines in a simulated world: their own stages, and the plain arithmetic of what they must answer."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.runtime.stage import Stage
from omnirt.testing.sim.scripts import Streams
from omnirt.wire.payload import Payload, Text
from omnirt.wire.plan import Plan


class PackagedPipeline:
    """Stands in for `SimPipeline`; the values of a text are its words, of an audio its samples."""

    lossy: frozenset[str] = frozenset()

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.classes: dict[str, type[Stage]] = {}

    def payload(self, tag: int, modality: str, values: tuple[int, ...]) -> Payload:
        return Text("".join(f"{value % 40 + 1} " for value in values))

    def values(self, payload: Any) -> list[Any]:
        return list(payload.text) if isinstance(payload, Text) else payload.samples.tolist()

    def problems(self, payload: Any, tag: int, fence: Any) -> list[str]:
        return []

    def draw_inputs(
        self, random: Random, opens: tuple[str, ...], outputs: tuple[str, ...]
    ) -> list[tuple[str, tuple[int, ...]]]:
        return [("text", tuple(random.randint(1, 40) for _ in range(2))) for _ in range(random.choice((0, 1, 2, 4)))]

    def expected(
        self, seed: int, inputs: Streams, opens: tuple[str, ...], outputs: tuple[str, ...]
    ) -> dict[str, list[Any]]:
        text = "".join(f"{value % 40 + 1} " for value in inputs.get("text", []))
        if self.plan.name == "maze":
            answer: str = resolve("omnirt.actors.stages.maze:expected")(text)
            return {"text": list(answer), "audio": _tone(0.2)}
        return {"text": list(text)}


def _tone(seconds: float) -> list[int]:
    samples: np.ndarray = resolve("omnirt.actors.stages.tone:sine")(440, 0, round(seconds * 24000), 24000)
    return samples.tolist()


def packaged(random: Random) -> Any:
    name = random.choice(("maze", "maze", "echo"))
    sets = [f"limits.requests_max={random.randint(2, 6)}", "limits.deadline_s=120", "restart.intensity=60"]
    sets.append("restart.backoff_max_s=1.0")
    plan = load_plan(name, sets=sets, cores=8)
    for stage in plan.stages:
        sets += [f"stage.{stage.name}.step_limit_s=1.0", f"stage.{stage.name}.load_limit_s=8.0"]
        sets.append(f"stage.{stage.name}.node={random.choice(('n1', 'n2', 'n3', 'n4'))}")
    plan = load_plan(name, sets=sets, cores=8)
    sets += [f"node.{group}.replicas={random.choice((1, 2, 3))}" for group in {node.group: 0 for node in plan.nodes}]
    return PackagedPipeline(load_plan(name, sets=sets, cores=8))
