"""How tokens are to be chosen, as tables."""

import pytest

from omnirt.gateway.chat_sampling import (
    CHANGES_THE_ANSWER,
    choices_of,
    nth_seed,
    sampling,
    wants_usage,
)
from omnirt.gateway.errors import ApiError
from omnirt.testing.scripted_chat import HONOURED


def refusal(work, *args):
    with pytest.raises(ApiError) as caught:
        work(*args)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


def test_every_field_arrives():
    fields = {
        "temperature": 0,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.1,
        "max_tokens": 7,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop": ["a", "b"],
    }
    assert sampling(fields, HONOURED) == fields


def test_nothing_given_is_nothing_sent():
    assert sampling({}, HONOURED) == {}


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        ({"stop": "a"}, {"stop": ["a"]}),
        ({"stop": []}, {"stop": []}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"max_completion_tokens": 5}, {"max_tokens": 5}),
        ({"max_completion_tokens": 5, "max_tokens": 9}, {"max_tokens": 5}),
        ({"logit_bias": {}}, {}),
        ({"best_of": 0}, {}),
    ],
)
def test_fields_have_their_forms(fields, params):
    assert sampling(fields, HONOURED) == params


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("temperature", -0.1, "temperature"),
        ("temperature", 2.1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("top_p", 1.1, "top_p"),
        ("top_k", -2, "top_k"),
        ("top_k", 1.5, "top_k"),
        ("min_p", 2, "min_p"),
        ("presence_penalty", 2.5, "presence_penalty"),
        ("frequency_penalty", -2.5, "frequency_penalty"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 10**9, "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("max_completion_tokens", 0, "max_completion_tokens"),
        ("min_tokens", -1, "min_tokens"),
        ("ignore_eos", 1, "ignore_eos"),
        ("stop", 5, "stop"),
        ("stop", "", "stop"),
        ("stop", ["a", ""], "stop[1]"),
        ("stop", ["a", 1], "stop[1]"),
        ("stop", ["a"] * 17, "stop"),
        ("stop", "a" * 257, "stop"),
        ("stop", {"a": 1}, "stop"),
    ],
)
def test_what_is_wrong_is_named(field, value, param):
    assert refusal(sampling, {field: value}, HONOURED).param == param


@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_a_wish_that_no_stage_knows_is_passed_over(field):
    assert sampling({field: 0.5}, ()) == {}


@pytest.mark.parametrize(
    ("field", "nothing", "something"),
    [
        ("frequency_penalty", 0, 0.5),
        ("presence_penalty", 0.0, -0.5),
        ("repetition_penalty", 1, 1.1),
        ("min_p", 0, 0.1),
        ("top_k", -1, 5),
        ("min_tokens", 0, 5),
        ("ignore_eos", False, True),
        ("stop", [], "x"),
    ],
)
def test_what_would_change_the_answer_is_refused_where_no_stage_knows_it(field, nothing, something):
    assert sampling({field: nothing}, ()) == {}
    error = refusal(sampling, {field: something}, ())
    assert (error.code, error.param) == ("unsupported_parameter", field)


def test_a_limit_that_no_stage_keeps_is_refused():
    assert refusal(sampling, {"max_tokens": 5}, ()).param == "max_tokens"


@pytest.mark.parametrize("field", CHANGES_THE_ANSWER)
def test_fields_of_other_servers_that_change_the_answer_are_refused(field):
    assert refusal(sampling, {field: {"a": 1}}, HONOURED).param == field
    assert sampling({field: {"a": 1}}, [field]) == {field: {"a": 1}}


def test_each_answer_has_a_seed_of_its_own():
    seeds = [nth_seed(7, index) for index in range(8)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 8
    assert seeds == [nth_seed(7, index) for index in range(8)]
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert nth_seed(None, 3) is None


def test_the_number_of_answers_has_bounds():
    assert [choices_of({}), choices_of({"n": 8})] == [1, 8]
    assert {refusal(choices_of, {"n": n}).param for n in (0, 9, "2", True)} == {"n"}


def test_usage_is_wanted_when_that_is_said():
    assert not wants_usage({})
    assert not wants_usage({"stream_options": {}})
    assert not wants_usage({"stream_options": {"include_usage": None}})
    assert wants_usage({"stream_options": {"include_usage": True}})
    assert refusal(wants_usage, {"stream_options": {"include_usage": 1}}).param == "stream_options.include_usage"
    assert refusal(wants_usage, {"stream_options": True}).param == "stream_options"
