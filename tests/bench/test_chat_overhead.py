import json
import tomllib

import pytest
from chat_overhead import ask_of, figures_of, text_only
from serve_round import round_of

PIPELINE = """
name = "voice"
inputs = ["chat", "audio"]
outputs = ["text", "audio"]
[limits]
requests_max = 16
[[stage]]
name = "ears"
actor = "x:Ears"
[[stage]]
name = "thinker"
actor = "x:Thinker"
final = "text"
[stage.options]
weights = ["a/b", "package:c==1"]
system = 'Say "yes".'
repetition_penalty = 1.05
[node.thinker]
threads = 2
[[edge]]
from = "ears.transcript"
to = "thinker.transcript"
"""


def test_the_thinker_is_cut_out_with_its_own_settings():
    alone, whole = tomllib.loads(text_only(tomllib.loads(PIPELINE))), tomllib.loads(PIPELINE)
    assert alone["stage"] == whole["stage"][1:]
    assert (alone["node"], alone["limits"]) == (whole["node"], whole["limits"])
    assert (alone["inputs"], alone["outputs"]) == (["chat"], ["text"])
    assert "edge" not in alone


def test_a_question_asks_for_exactly_its_length():
    wanted = round_of(1, 1, 8, 48, 200)
    body = json.loads(ask_of(wanted, wanted.questions[0]).body)
    assert body["max_tokens"] == body["min_tokens"] == wanted.questions[0].tokens
    assert body["ignore_eos"] is True
    assert (body["temperature"], body["repetition_penalty"]) == (0.0, 1.0)


def test_figures_are_of_a_whole_round():
    side = {"ttft_ns": [3_000_000, 1_000_000, 2_000_000], "tokens": 30, "prompt_tokens": 9, "seconds": 2.0}
    side["used_s"] = {"head": 0.003}
    figures = figures_of(side)
    assert (figures["ttft_ms"], figures["tokens_per_s"], figures["prompt_tokens"]) == (2.0, 15.0, 9)
    assert figures["used_ms"] == {"head": pytest.approx(0.1)}
    assert figures["ttft_p90_ms"] == pytest.approx(2.8)
