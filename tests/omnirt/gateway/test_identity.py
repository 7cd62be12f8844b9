"""Which names clients may give their requests."""

import pytest

from omnirt.gateway.identity import request_id_of


@pytest.mark.parametrize("name", ["a", "trace-1/2 3", "x" * 128, "~!@#"])
def test_sane_names_are_kept(name):
    assert request_id_of(name) == name


@pytest.mark.parametrize("name", [None, "", "x" * 129, "x" * 10_000, "a\nb", "a\x00", "é", "\x7f", "日本"])
def test_other_names_are_replaced(name):
    made = request_id_of(name)
    assert made.startswith("req_")
    assert len(made) == 28
    assert made != request_id_of(name)
