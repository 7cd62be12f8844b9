"""A pipeline that can only copy voices, for tests of the gateway: see `scripted_service`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from omnirt.ids import CLIENT
from omnirt.testing.scripted_service import RATE, speech_plan
from omnirt.wire.plan import EdgePlan, Plan, StagePlan


def clone_plan(name: str = "clone", **limits: Any) -> Plan:
    """As `speech_plan`, with a stage that hears the recording of a voice to copy."""
    plan = speech_plan(name, **limits)
    hears = StagePlan(name="ear", actor="none:Ear", group="main")
    wires = ((CLIENT, "audio", "ear", "audio"), ("ear", "voice", "voice", "voice"))
    edges = tuple(EdgePlan(len(plan.edges) + index, *wire) for index, wire in enumerate(wires))
    return structs.replace(plan, inputs=("text", "audio"), stages=(hears, *plan.stages), edges=(*plan.edges, *edges))


def clone_facts() -> dict[str, dict[str, Any]]:
    """Of a pipeline that can only copy voices."""
    parameters = ["ref_text", "x_vector_only_mode", "task_type"]
    voice = {"sample_rate": RATE, "task_types": ["Base"], "parameters": parameters}
    return {"ear": {"cloning": True}, "text": {}, "voice": voice}
