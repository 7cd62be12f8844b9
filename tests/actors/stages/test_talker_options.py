from __future__ import annotations

import msgspec
import pytest

from omnirt.actors.stages.talker_options import TalkerOptions
from omnirt.errors import ConfigError


def test_the_defaults_are_fine():
    TalkerOptions(weights="folder").check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", 0),
        ("frames_max", 0),
        ("prompt_max", 8),
        ("prefill_positions", 0),
        ("cache_gib", 0.0),
        ("chunk_frames", ()),
        ("chunk_frames", (1, 0)),
        ("weights_bits", 4),
    ],
)
def test_what_cannot_be_is_refused_by_key(name, value):
    with pytest.raises(ConfigError, match=name):
        msgspec.structs.replace(TalkerOptions(weights="folder"), **{name: value}).check()


def test_unknown_keys_are_refused():
    with pytest.raises(msgspec.ValidationError, match="row"):
        msgspec.convert({"weights": "folder", "row": 1}, TalkerOptions)
