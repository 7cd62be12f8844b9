"""Counting: every sum adds up, whatever the stages report."""

import pytest

from omnirt.gateway.chat_usage import Counts, counts_of, reported, usage_of

THINKER = {"prompt_tokens": 12, "cached_tokens": 4, "completion_tokens": 7, "finish_reason": "length", "steps": 9}


@pytest.mark.parametrize(
    ("reports", "counts"),
    [
        ({}, Counts()),
        ({"a": {}, "b": {"busy_ns": 5}}, Counts()),
        ({"thinker": THINKER}, Counts(12, 4, 7, 0, "length")),
        ({"ears": {"audio_s": 2.0}, "brain": THINKER, "mouth": {"steps": 3}}, Counts(12, 4, 7, 0, "length")),
        ({"thinker": THINKER, "acoustic": {"output_tokens": 30}}, Counts(12, 4, 7, 30, "length")),
        (
            {"thinker": THINKER, "acoustic": {"output_tokens": 30}, "synthesis": {"output_tokens": 31}},
            Counts(12, 4, 7, 31, "length"),
        ),
        ({"thinker": THINKER | {"output_tokens": 7}}, Counts(12, 4, 7, 0, "length")),
        ({"thinker": {"completion_tokens": 3}}, Counts(text=3)),
    ],
)
def test_counts_are_found_by_what_is_reported(reports, counts):
    assert counts_of(reports) == counts


def test_usage_adds_up():
    usage = usage_of([[Counts(12, 4, 7, 30)]])
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (12, 37, 49)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4, "audio_tokens": 0}
    assert usage["completion_tokens_details"]["audio_tokens"] == 30
    assert usage["completion_tokens_details"]["text_tokens"] == 7
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_a_prompt_counts_once_however_many_answers_it_gets():
    usage = usage_of([[Counts(10, 0, 1), Counts(10, 8, 2)], [Counts(5, 1, 3), Counts(5, 5, 4)]])
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (15, 10, 25)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 1


def test_what_no_stage_counts_is_not_a_count_of_nothing():
    assert reported({"a": {"x": 1}, "b": {"x": 2}, "c": {}}, "x") == 3
    assert reported({"a": {"x": 0}}, "x") == 0
    assert reported({"a": {"y": 1}}, "x") is reported({"a": {"x": -1}, "b": {"x": "many"}}, "x") is None
