"""What an answer cost and why it ended, from what the stages reported.

Stages are found by the figures they report, never by name. What nobody reports counts 0, so that the sums always add
up. Several answers to one prompt count its tokens once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Reports = Mapping[str, Mapping[str, Any]]
"""Stage -> what it said, in the order in which the stages work."""


class Counts(Struct, frozen=True):
    prompt: int = 0
    cached: int = 0
    text: int = 0
    audio: int = 0
    finish_reason: str = "stop"

    @property
    def completion(self) -> int:
        return self.text + self.audio


def counts_of(reports: Reports) -> Counts:
    """Of one answer. Audio tokens are those of the last stage that reports `output_tokens`: stages that hand on to each
    other count the same speech."""
    audio = 0
    for report in reports.values():
        if "completion_tokens" not in report:
            audio = report.get("output_tokens", audio)
    reasons = [str(report["finish_reason"]) for report in reports.values() if report.get("finish_reason")]
    return Counts(
        prompt=_total(reports, "prompt_tokens"),
        cached=_total(reports, "cached_tokens"),
        text=_total(reports, "completion_tokens"),
        audio=max(0, int(audio)),
        finish_reason=reasons[-1] if reasons else "stop",
    )


def usage_of(prompts: list[list[Counts]]) -> dict[str, object]:
    """Per prompt, the counts of its answers."""
    prompt = sum(answers[0].prompt for answers in prompts)
    answers = [answer for each in prompts for answer in each]
    text, audio = sum(answer.text for answer in answers), sum(answer.audio for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": text + audio,
        "total_tokens": prompt + text + audio,
        "prompt_tokens_details": {"cached_tokens": sum(each[0].cached for each in prompts), "audio_tokens": 0},
        "completion_tokens_details": {
            "audio_tokens": audio,
            "text_tokens": text,
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def reported(reports: Reports, name: str) -> int | None:
    """The sum of what the stages say; None where no stage counts it."""
    said: list[Any] = [report[name] for report in reports.values() if name in report]
    counts = [count for count in said if isinstance(count, int) and count >= 0]
    return sum(counts) if counts else None


def _total(reports: Reports, name: str) -> int:
    return reported(reports, name) or 0
