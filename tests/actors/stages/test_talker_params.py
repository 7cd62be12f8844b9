from __future__ import annotations

import pytest

from omnirt.actors.stages.talker_params import FRAMES_SPARE, frames_for, wishes
from omnirt.errors import InvalidRequest


def test_what_is_left_out_is_left_to_the_defaults():
    found = wishes({})
    assert (found.frames_max, found.voice, found.language, found.instructions) == (0, None, None, "")
    assert not found.ignore_stop
    assert found.non_streaming is None


def test_values_are_taken_as_they_are():
    found = wishes({"max_new_tokens": 125, "ignore_eos": True, "voice": "vivian", "reference": True})
    assert (found.frames_max, found.ignore_stop, found.voice, found.has_recording) == (125, True, "vivian", True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 0),
        ("max_new_tokens", 1.5),
        ("max_new_tokens", True),
        ("ignore_eos", "yes"),
        ("non_streaming_mode", 1),
        ("language", 3),
        ("voice", ["vivian"]),
        ("ref_text", {}),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: object):
    with pytest.raises(InvalidRequest, match=name) as error:
        wishes({name: value})
    assert error.value.param == name


def test_a_text_bounds_its_speech_so_that_a_loop_ends():
    assert frames_for(10, 0, 2048) == FRAMES_SPARE + 120
    assert frames_for(10, 125, 2048) == 125
    assert frames_for(1000, 0, 2048) == 2048
