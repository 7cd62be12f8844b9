from __future__ import annotations

import pytest

from omnirt.actors.models.json_object import read_json
from omnirt.errors import ConfigError


def test_an_object_is_read(tmp_path):
    (tmp_path / "config.json").write_text('{"a": [1]}')
    assert read_json(tmp_path / "config.json") == {"a": [1]}


@pytest.mark.parametrize(("text", "why"), [("{", "is no JSON"), ("[1]", "holds no object"), (None, "does not exist")])
def test_what_is_none_is_named_with_its_file(tmp_path, text, why):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=f"config.json {why}"):
        read_json(tmp_path / "config.json")


def test_bytes_that_are_no_text_are_no_json(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigError, match="is no JSON"):
        read_json(tmp_path / "config.json")
