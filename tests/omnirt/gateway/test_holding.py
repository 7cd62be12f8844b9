"""A bound on what all requests hold together."""

import contextlib

import pytest

from omnirt.errors import Overloaded
from omnirt.gateway.holding import Holding


def test_what_a_share_took_comes_back_with_it():
    holding = Holding(10, "audio")
    with holding.share() as one, holding.share() as other:
        one.take(6)
        one.take(1)
        other.take(3)
        assert holding.held == 10
        with pytest.raises(Overloaded, match="Too much audio"):
            other.take(1)
        assert holding.held == 10
    assert holding.held == 0


def test_a_share_gives_back_when_its_work_fails():
    holding = Holding(10, "audio")
    with contextlib.suppress(ValueError), holding.share() as share:
        share.take(4)
        raise ValueError
    assert holding.held == 0
