import pytest

from omnirt import errors
from omnirt.errors import Failure, OmnirtError, error_from


def kinds():
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OmnirtError)]


def test_every_error_has_a_code_of_its_own():
    codes = [kind.code for kind in kinds()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("code", ["stage_lost", "stage_failed", "timeout", "cancelled", "unsupported", "invalid_value"])
def test_an_error_comes_back_from_the_wire_as_what_it_was(code):
    error = error_from(Failure(code, "what happened", "tts"))
    assert (error.code, error.message, error.stage) == (code, "what happened", "tts")
    assert error.failure() == Failure(code, "what happened", "tts")


def test_a_stage_that_has_no_room_says_so_across_the_wire():
    assert isinstance(error_from(Failure("queue_full", "no room", "tts")), errors.Overloaded)


def test_a_code_nobody_knows_is_an_internal_error():
    error = error_from(Failure("strange", "odd"))
    assert type(error) is OmnirtError
    assert error.failure().code == "internal_error"
