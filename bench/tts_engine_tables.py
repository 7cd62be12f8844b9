"""Tables of the engine's part of `bench/tts`, from its figures. Pure."""

from __future__ import annotations

from typing import Any

from tts_figures import CLOSED, Column, table

LOOP: tuple[Column, ...] = (
    ("a launch ms", "loop_ms", ".2f"),
    ("talker's host ms", "talker_host_ms", ".2f"),
    ("decoder's", "decoder_host_ms", ".2f"),
)
FLOOR: tuple[Column, ...] = (("floor", "floor_ms", ".3f"), ("times it", "times_floor", ".2f"))
BUCKETS: tuple[Column, ...] = (
    ("rows", "rows", "d"),
    ("position", "position", ".0f"),
    ("frame ms", "ms", ".3f"),
    *FLOOR,
    ("in the loop", "loop_ms", ".3f"),
)
PREFILL: tuple[Column, ...] = (
    ("prompts", "rows", "d"),
    ("positions", "positions", "d"),
    ("prefill ms", "ms", ".3f"),
    *FLOOR,
    ("added -> first codes", "first_codes_ms", ".3f"),
)
DECODER: tuple[Column, ...] = (
    ("rows", "rows", "d"),
    ("frames", "frames", "d"),
    ("call ms", "ms", ".3f"),
    *FLOOR,
    ("a frame of all", "frame_ms", ".3f"),
    ("samples on the host", "done_ms", ".3f"),
)
UNSAID = ("client_busiest",)


def engine_tables(part: dict[str, Any]) -> str:
    columns = (*(column for column in CLOSED if column[1] not in UNSAID), *LOOP)
    taken = f", {part['gpu_mib']:.0f} MiB of the GPU" if part.get("gpu_mib") is not None else ""
    return "\n".join(
        (
            f"talker and decoder in one process, without a server; loaded in {part['start_s']:.1f} s{taken}",
            table(part["levels"], columns),
            "\na frame of the talker",
            table(part["buckets"], BUCKETS),
            "\nprefill",
            table(part["prefill"], PREFILL),
            "\na call of the decoder",
            table(part["decoder"], DECODER),
        )
    )
