"""Fields of a JSON body and their types, as tables."""

import pytest

from omnirt.gateway import fields as read
from omnirt.gateway.errors import ApiError


def refusal(work, *args, **options):
    with pytest.raises(ApiError) as caught:
        work(*args, **options)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


def test_a_null_is_absent_and_the_top_level_wins_over_what_is_nested():
    body = {"a": 1, "b": None, "c": None, "extra_body": {"a": 2, "b": 3, "d": None, "e": 5}}
    assert read.flat(body) == {"a": 1, "b": 3, "e": 5}


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_body_is_an_object(body):
    assert refusal(read.flat, body).param is None


def test_what_is_nested_is_an_object():
    assert refusal(read.flat, {"extra_body": [1]}).param == "extra_body"


@pytest.mark.parametrize(
    ("work", "good", "bad"),
    [
        (lambda f: read.text(f, "x", 3), ["", "abc"], ["abcd", 1, True, [], {}]),
        (lambda f: read.choice(f, "x", ("a", "b")), ["a", "b"], ["c", "", 1, ["a"], {"a": 1}]),
        (lambda f: read.flag(f, "x"), [True, False], [0, 1, "true", []]),
        (lambda f: read.whole(f, "x", -1, 3), [-1, 3], [-2, 4, 1.5, "1", True, 10**400]),
        (lambda f: read.number(f, "x", -1.0, 3.0), [-1, 3, 0.5], [-1.1, 4, float("inf"), "1", False, 10**400]),
        (lambda f: read.record(f, "x"), [{}, {"a": 1}], [[], "x", 1]),
    ],
)
def test_values_are_given_as_they_are_or_refused(work, good, bad):
    assert work({}) is None
    for value in good:
        assert work({"x": value}) == value
    for value in bad:
        assert refusal(work, {"x": value}).param == "x"


def test_a_nested_field_is_named_with_its_path():
    assert refusal(read.text, {"x": 1}, "x", within="a[0].").param == "a[0].x"
    assert refusal(read.choice, {"x": 1}, "x", ("a",), "a.").param == "a.x"
    assert refusal(read.flag, {"x": 1}, "x", "a.").param == "a.x"
    assert refusal(read.record, {"x": 1}, "x", "a.").param == "a.x"


def test_what_is_not_supported_says_so():
    error = read.unsupported("tools").refusal
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "tools")


def test_a_seed_has_bounds():
    assert read.seed_of({"seed": -(1 << 63)}) == -(1 << 63)
    assert {refusal(read.seed_of, {"seed": seed}).param for seed in (1 << 63, 1.5)} == {"seed"}


def test_another_speed_than_one_needs_a_stage_that_can():
    assert read.speed_of({}, ()) == read.speed_of({"speed": 1}, ()) == 1.0
    assert read.speed_of({"speed": 2}, ["speed"]) == 2.0
    assert refusal(read.speed_of, {"speed": 2}, ()).code == "unsupported_parameter"
    assert {refusal(read.speed_of, {"speed": speed}, ["speed"]).param for speed in (0.2, 4.1, "fast")} == {"speed"}


def test_a_name_is_a_string_or_an_object_with_an_id():
    assert read.name_of(None, "voice") is None
    assert read.name_of("heart", "voice") == read.name_of({"id": "heart"}, "voice") == "heart"
    assert {refusal(read.name_of, value, "voice").param for value in ("", " ", 3, {}, {"id": 3}, ["a"])} == {"voice"}


def test_further_fields_are_plain_values():
    fields = {"a": 1, "b": "x", "c": None, "d": True}
    assert read.plain(fields, ["a", "b", "c", "e"]) == {"a": 1, "b": "x"}
    for value in ([], {}, "x" * 4097, 1 << 64, -1 << 64):
        assert refusal(read.plain, {"a": value}, ["a"]).param == "a"
