from __future__ import annotations

import os
import select

import pytest

from omnirt.shm.doorbell import Doorbell


def readable(bell: Doorbell) -> bool:
    return bool(select.select([bell.fileno()], [], [], 0)[0])


def test_a_rung_bell_is_readable_until_it_is_cleared_however_often_it_was_rung() -> None:
    bell = Doorbell.create()
    assert not readable(bell)
    bell.ring()
    bell.ring()
    assert readable(bell)
    assert bell.clear()
    assert not readable(bell)
    assert not bell.clear(), "clearing a silent bell does not block"
    bell.close()
    bell.close()


def test_a_bell_is_non_blocking_and_not_inherited() -> None:
    bell = Doorbell.create()
    assert not os.get_blocking(bell.fileno())
    assert not os.get_inheritable(bell.fileno())
    bell.close()
    with pytest.raises(ValueError, match="negative"):
        bell.ring()
