"""The names on `/metrics` and a phrase for each. metrics.md defines them exactly; a test holds the two together."""

from __future__ import annotations

from omnirt.clock import NS

REQUESTS = ("omnirt_requests", "Requests that ended, by outcome.")
ANSWERS = ("omnirt_http_requests", "Answers sent, by route and status.")

SURFACE_HISTOGRAMS: dict[str, tuple[str, str]] = {
    "queue": ("omnirt_request_queue_seconds", "Arrival until the first stage opened the request."),
    "ttft": ("omnirt_request_ttft_seconds", "Arrival until the first text."),
    "ttfp": ("omnirt_request_ttfp_seconds", "Arrival until the first audio that is not empty."),
    "text_gaps": ("omnirt_request_inter_token_seconds", "From one text output to the next."),
    "audio_gaps": ("omnirt_request_inter_chunk_seconds", "From one audio output to the next."),
    "e2e": ("omnirt_request_e2e_seconds", "Arrival until the end of the answer."),
    "rtf": ("omnirt_request_rtf", "Whole time over the length of the audio."),
}
"""By attribute of `track.SurfaceFigures`: name and phrase."""

SURFACE_COUNTERS: dict[str, tuple[str, str, int]] = {
    "tokens": ("omnirt_request_tokens", "Tokens of text given to clients.", 1),
    "prompt_tokens": ("omnirt_request_prompt_tokens", "Tokens of the prompts.", 1),
    "cached_tokens": ("omnirt_request_cached_tokens", "Tokens of the prompts that were in a cache.", 1),
    "audio_s": ("omnirt_request_audio_seconds", "Length of the audio given to clients.", 1),
    "heard_s": ("omnirt_request_heard_seconds", "Length of the recordings that were recognised.", 1),
    "underruns": ("omnirt_request_player_underruns", "Times a player that starts at once would have run dry.", 1),
    "dry_ns": ("omnirt_request_player_dry_seconds", "How long such players would have been silent.", NS),
}
"""The same, and how many of what is counted make one."""

STAGE_HISTOGRAMS: dict[str, tuple[str, str]] = {
    "wait": ("omnirt_stage_wait_seconds", "Opened until the first step."),
    "first_output": ("omnirt_stage_first_output_seconds", "Opened until the first output."),
    "busy": ("omnirt_stage_request_busy_seconds", "Time in steps that the request took part in."),
    "whole": ("omnirt_stage_whole_seconds", "Opened until the end of the output."),
}
"""By attribute of `track.StageFigures`."""

FIGURES: dict[str, str] = {
    "frames": "Codec frames made.",
    "launches": "Steps of the engine that were launched.",
    "prefilled": "Positions of prompts computed.",
    "rows_used": "Rows of the engine in use.",
    "rows_max": "Rows that the engine has.",
    "pages_used": "Pages of the cache that are taken.",
    "pages_max": "Pages that the cache has.",
    "calls": "Calls of the decoder.",
}
"""What a stage may say of itself (`Stage.figures`)."""

STAGE_COUNTED = frozenset(
    {"steps", "busy_seconds", "chunks_in", "chunks_out", "stale", "failed", "dropped"}
    | {"frames", "launches", "prefilled", "calls"}
)
"""Figures of a cell that only rise."""

ASKED: dict[str, str] = {
    "omnirt_info": "Always 1; its labels say what runs.",
    "omnirt_up": "Whether a request would be served.",
    "omnirt_requests_running": "Requests that have a slot.",
    "omnirt_requests_waiting": "Requests that wait for a slot or a replica.",
    "omnirt_request_slots": "Requests that may run at once.",
    "omnirt_stage_ready": "Replicas that are ready.",
    "omnirt_stage_replicas": "Replicas there should be.",
    "omnirt_stage_restarts": "Times a process of the stage was started again.",
    "omnirt_stage_rows": "Requests open at the stage.",
    "omnirt_stage_waiting": "Chunks that wait to be worked on.",
    "omnirt_stage_parked": "Requests with input that wait for credit.",
    "omnirt_stage_steps": "Steps run.",
    "omnirt_stage_busy_seconds": "Time in steps.",
    "omnirt_stage_chunks_in": "Chunks received.",
    "omnirt_stage_chunks_out": "Chunks sent.",
    "omnirt_stage_stale": "Chunks dropped because their request was over.",
    "omnirt_stage_dropped": "Chunks dropped on edges that keep the newest.",
    "omnirt_stage_failed": "Requests that failed at the stage.",
    "omnirt_process_answered": "Whether the process answered this scrape in time.",
    "omnirt_process_stale": "Chunks that reached the head for requests that were over.",
    "omnirt_link_out_bytes": "Bytes of the ring towards the peer that are unread.",
    "omnirt_link_out_bytes_max": "Size of the ring towards the peer.",
    "omnirt_link_out_slots": "Payload slots towards the peer in use.",
    "omnirt_link_out_slots_max": "Payload slots towards the peer.",
    "omnirt_link_in_bytes": "Bytes of the ring from the peer that are unread.",
    "omnirt_link_in_slots": "Payload slots from the peer that are held here.",
} | {f"omnirt_stage_{name}": phrase for name, phrase in FIGURES.items()}
"""What is asked when somebody looks, and what it is; counters without their `_total`."""
