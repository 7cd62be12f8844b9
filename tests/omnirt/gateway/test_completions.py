"""Raw prompts: what is refused, and what comes back."""

import json

import pytest

from omnirt.gateway.completions import (
    CompletionRequest,
    CompletionRules,
    completion_logprobs,
    parse_completion,
)
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import ApiError
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import HONOURED, chatting
from omnirt.testing.scripted_service import Fail, SayText, ScriptedService, Wait
from omnirt.wire.payload import TokenLogprob

RULES = CompletionRules(honoured=frozenset(HONOURED))


@pytest.fixture(scope="module")
def shared():
    with LiveGateway(lambda: ScriptedService(**chatting())) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared):
    script = shared.service.script
    yield shared
    shared.service.script = script


def complete(gateway, **fields):
    return gateway.ask("POST", "/v1/completions", {"prompt": "once upon a time"} | fields)


def refusal(rules=RULES, **fields):
    with pytest.raises(ApiError) as caught:
        parse_completion({"prompt": "x"} | fields, rules)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


def test_the_smallest_request_gets_the_defaults():
    assert parse_completion({"prompt": "x"}, RULES) == CompletionRequest(("x",))


def test_every_field_arrives():
    body = {
        "prompt": ["x", "y"],
        "n": 2,
        "best_of": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 3,
        "logprobs": 2,
        "max_tokens": 5,
        "echo": False,
        "suffix": None,
        "user": "me",
    }
    params = {"max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    assert parse_completion(body, RULES) == CompletionRequest(("x", "y"), 2, True, True, 3, True, params)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter"),
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": {"a": 1}}, "prompt", "invalid_value"),
        ({"prompt": ["x", ""]}, "prompt[1]", "invalid_value"),
        ({"prompt": [1, 2]}, "prompt[0]", "unsupported_parameter"),
        ({"prompt": [[1, 2]]}, "prompt[0]", "unsupported_parameter"),
        ({"prompt": ["x"] * 9, "n": 4}, "prompt", "invalid_value"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"suffix": "x"}, "suffix", "unsupported_parameter"),
        ({"best_of": 3}, "best_of", "unsupported_parameter"),
        ({"best_of": "x"}, "best_of", "invalid_value"),
        ({"logprobs": 21}, "logprobs", "invalid_value"),
        ({"logprobs": True}, "logprobs", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"stream": 1}, "stream", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ],
)
def test_what_is_wrong_is_named(fields, param, code):
    error = refusal(**fields)
    assert (error.param, error.code) == (param, code)


def test_what_no_stage_acts_on_is_refused():
    assert refusal(CompletionRules(), logprobs=1).param == "logprobs"
    assert refusal(CompletionRules(), max_tokens=1).param == "max_tokens"
    assert refusal(CompletionRules(chars_max=2), prompt="xxx").param == "prompt"


def test_log_probabilities_have_their_old_form():
    token = TokenLogprob("one", b"one", -0.5, (TokenLogprob("one", b"one", -0.5), TokenLogprob("two", b"two", -1.0)))
    assert completion_logprobs((token, token), 10) == {
        "tokens": ["one", "one"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"one": -0.5, "two": -1.0}] * 2,
        "text_offset": [10, 13],
    }


def test_one_prompt_gets_one_answer(gateway):
    answer = complete(gateway, max_tokens=3).json()
    assert (answer["object"], answer["id"][:5]) == ("text_completion", "cmpl-")
    (choice,) = answer["choices"]
    assert choice == {"index": 0, "text": "once upon a", "logprobs": None, "finish_reason": "length"}
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (14, 3, 17)
    submit = gateway.service.submitted[-1]
    ((modality, prompt),) = submit.inputs
    assert (modality, prompt.text()) == ("prompt", "once upon a time")
    assert submit.outputs == ("text",)


def test_a_prompt_that_its_edge_does_not_carry_is_refused_before_it_is_sent(gateway):
    prompt = "\u4e2d" * 400_000  # few enough characters
    before = len(gateway.service.submitted)
    refused = complete(gateway, prompt=["x", prompt]).error()
    assert (refused["param"], refused["message"]) == ("prompt", "prompt has 1200000 bytes; this model takes 1048576.")
    assert len(gateway.service.submitted) == before


def test_answers_come_prompt_by_prompt(gateway):
    answer = complete(gateway, prompt=["a b c", "d e"], n=2, seed=3).json()
    texts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [sorted(text.split()) for text in texts] == [["a", "b", "c"]] * 2 + [["d", "e"]] * 2
    assert answer["usage"]["prompt_tokens"] == 13 + 12
    assert answer["usage"]["completion_tokens"] == 10


def events_of(answer):
    lines = [line[6:] for line in answer.body.decode().splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_is_the_same_in_pieces(gateway):
    gateway.service.script = lambda submit: [
        step for word in submit.inputs[0][1].text().split() for step in (SayText(word), Wait(0.005))
    ]
    events = events_of(complete(gateway, prompt=["a b", "c d"], stream=True, stream_options={"include_usage": True}))
    for index, text in enumerate(("ab", "cd")):
        own = [event["choices"][0] for event in events[:-1] if event["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == text
        assert [choice["finish_reason"] for choice in own] == [None, None, "stop"]
    assert {event["object"] for event in events} == {"text_completion"}
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] == 0, "nobody reported"
    assert all(event["usage"] is None for event in events[:-1])


def test_log_probabilities_travel_in_streams(gateway):
    events = events_of(complete(gateway, stream=True, logprobs=1))
    found = [event["choices"][0]["logprobs"] for event in events[:-1]]
    assert [entry["text_offset"] for entry in found] == [[0], [4], [9], [11]]


def test_a_failure_mid_stream_is_an_event_without_an_end(gateway):
    gateway.service.script = lambda _: [SayText("x"), Wait(0.01), Fail("stage_failed")]
    body = json.dumps({"prompt": "x", "stream": True})
    received = gateway.exchange(
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    assert b'"code":"stage_failed"' in received
    assert b"[DONE]" not in received


def test_a_pipeline_without_it_says_so(make_gateway):
    answer = complete(make_gateway())
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")


def test_prompts_have_a_bound(make_gateway):
    gateway = make_gateway(config=GatewayConfig(chat_chars_max=5), **chatting())
    assert complete(gateway).error()["param"] == "prompt"


def test_it_is_counted(make_gateway):
    gateway = make_gateway(**chatting())
    assert complete(gateway).status == 200
    metrics = gateway.ask("GET", "/metrics").body.decode()
    assert 'surface="completion"' in metrics
