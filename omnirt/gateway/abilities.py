"""Which surfaces a pipeline has something behind: what it makes from what, as requests are routed."""

from __future__ import annotations

from omnirt.errors import Unsupported
from omnirt.ids import CLIENT
from omnirt.pipeline.router import needed_stages
from omnirt.wire.plan import Plan


def speaks(plan: Plan) -> bool:
    """Text to speech: `/v1/audio/speech`, and its socket."""
    return makes(plan, "text", "audio")


def hears(plan: Plan) -> bool:
    """Speech to text: `/v1/audio/transcriptions`."""
    return makes(plan, "audio", "transcript")


def chats(plan: Plan) -> bool:
    """`/v1/chat/completions`."""
    return makes(plan, "chat", "text")


def completes(plan: Plan) -> bool:
    """A prompt to what follows it: `/v1/completions`."""
    return bool(prompt_input(plan))


def prompt_input(plan: Plan) -> str:
    """The input that prompts go to; empty where there is none."""
    return next((name for name in ("prompt", "text") if makes(plan, name, "text")), "")


def makes(plan: Plan, given: str, wanted: str) -> bool:
    """Whether some way leads from input `given` to output `wanted`."""
    if given not in plan.inputs or wanted not in plan.outputs:
        return False
    try:
        return bool(needed_stages(plan, (given,), (wanted,)))
    except Unsupported:
        return False


def between(plan: Plan, given: str, wanted: str) -> tuple[str, ...]:
    """The stages that make `wanted` from `given`; none when no way leads there."""
    return needed_stages(plan, (given,), (wanted,)) if makes(plan, given, wanted) else ()


def input_bytes_max(plan: Plan, name: str) -> int:
    """What one chunk of input `name` may have in arrays."""
    edges = [edge for edge in plan.edges if (edge.source, edge.port) == (CLIENT, name)]
    return min((edge.chunk_bytes_max for edge in edges), default=1 << 62)


def endpoints(plan: Plan) -> list[str]:
    """The surfaces of `plan`, by path."""
    surfaces = {
        "/v1/chat/completions": chats,
        "/v1/completions": completes,
        "/v1/audio/speech": speaks,
        "/v1/audio/speech/stream": speaks,
        "/v1/audio/transcriptions": hears,
    }
    return [path for path, serves in surfaces.items() if serves(plan)]
