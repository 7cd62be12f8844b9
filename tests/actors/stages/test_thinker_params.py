import json

import pytest

from omnirt.actors.stages.thinker_params import HONOURED, Defaults, wishes
from omnirt.errors import InvalidRequest

NONE = Defaults()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 2.1),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", float("nan")),
        ("top_p", -0.1),
        ("min_p", 1.5),
        ("presence_penalty", -3),
        ("frequency_penalty", 3),
        ("repetition_penalty", 0),
        ("top_k", -1),
        ("top_k", 1.5),
        ("min_tokens", -1),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", 5),
        ("stop", ["x"] * 17),
        ("logprobs", 1),
        ("top_logprobs", 21),
        ("ignore_eos", "yes"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=name) as caught:
        wishes({name: value}, 1, NONE)
    assert caught.value.param == name


def test_what_is_asked_for_is_what_the_engine_gets():
    asked = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
        "repetition_penalty": 1.1, "min_tokens": 2, "ignore_eos": True, "logprobs": True, "top_logprobs": 3,
        "max_tokens": 5, "stop": ["a", "b"], "unknown": "ignored",
    }  # fmt: skip
    found = wishes(asked, 7, NONE)
    sampling = found.within(100, 50)
    assert found.stops == ("a", "b")
    assert (sampling.seed, sampling.logprobs, sampling.max_tokens) == (7, 3, 5)
    for name in set(HONOURED) - {"logprobs", "top_logprobs", "stop"}:
        assert getattr(sampling, name) == asked[name], name


def test_a_limit_is_the_requests_or_the_stages_or_the_contexts():
    assert wishes({"max_tokens": 9}, 1, NONE).within(100, 50).max_tokens == 9
    assert wishes({"max_tokens": 900}, 1, NONE).within(100, 50).max_tokens == 100
    assert wishes({}, 1, NONE).within(100, 50).max_tokens == 50
    assert wishes({"max_tokens": None}, 1, NONE).within(100, 0).max_tokens == 100
    assert wishes({"min_tokens": 80}, 1, NONE).within(100, 50).min_tokens == 50


def test_fewer_tokens_than_at_least_wanted_is_refused():
    with pytest.raises(InvalidRequest, match="min_tokens must be at most max_tokens, 3"):
        wishes({"min_tokens": 4, "max_tokens": 3}, 1, NONE)


def test_one_stop_string_needs_no_list():
    assert wishes({"stop": "x"}, 1, NONE).stops == ("x",)
    assert wishes({"top_logprobs": 3}, 1, NONE).sampling.logprobs == -1


def test_defaults_are_the_stages_before_the_checkpoints(tmp_path):
    assert Defaults.of(tmp_path, {"temperature": None}) == Defaults()
    config = {"do_sample": True, "temperature": 0.7, "top_k": 20, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert Defaults.of(tmp_path, {"top_k": 5, "top_p": None}) == Defaults(temperature=0.7, top_k=5)
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": False}))
    assert Defaults.of(tmp_path, {}).temperature == 0.0
