"""A pipeline that hears, thinks and speaks, for the scripted service: its plan, what its stages say, and its answers.

The default script answers with the words of the last message, a word at a time and turned with the seed, and speaks
them when audio was asked for; a recording is transcribed as its length. Every stage reports counts that follow from the
request, so that usage can be checked exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any

from omnirt.ids import CLIENT
from omnirt.session.service import Submit
from omnirt.testing.scripted_service import (
    RATE,
    SECONDS_PER_CHARACTER,
    Report,
    SayText,
    SayTranscript,
    Step,
    chunks_of,
    speak,
    tone,
)
from omnirt.wire.payload import Chat, Pcm, Prompt, TokenLogprob, Transcript
from omnirt.wire.plan import EdgePlan, LimitsPlan, Plan, StagePlan

HONOURED = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "stop", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logprobs", "top_logprobs", "ignore_eos", "min_tokens",
)  # fmt: skip
WIRES = (
    (CLIENT, "audio", "recogniser", "audio"),
    ("recogniser", "transcript", CLIENT, "transcript"),
    ("recogniser", "transcript", "thinker", "transcript"),
    (CLIENT, "chat", "thinker", "chat"),
    (CLIENT, "prompt", "thinker", "prompt"),
    ("thinker", "text", CLIENT, "text"),
    ("thinker", "text", "voice", "text"),
    (CLIENT, "text", "voice", "text"),
    ("voice", "audio", CLIENT, "audio"),
)


def chat_plan(name: str = "voice", **limits: Any) -> Plan:
    finals = {"recogniser": "transcript", "thinker": "text", "voice": "audio"}
    return Plan(
        name=name,
        inputs=("chat", "prompt", "text", "audio"),
        outputs=("text", "audio", "transcript"),
        stages=tuple(
            StagePlan(name=stage, actor="none:Stage", group="main", final=final) for stage, final in finals.items()
        ),
        edges=tuple(EdgePlan(index, *wire) for index, wire in enumerate(WIRES)),
        nodes=(),
        links=(),
        aliases=("gpt-4o-audio-preview",),
        limits=LimitsPlan(**limits),
    )


def chat_facts() -> dict[str, dict[str, Any]]:
    voice = {"sample_rate": RATE, "voices": ["heart", {"id": "deep", "name": "Deep"}], "default_voice": "heart"}
    return {
        "recogniser": {"parameters": ["language", "prompt", "temperature", "timestamps"]},
        "thinker": {"parameters": list(HONOURED)},
        "voice": voice | {"parameters": ["speed"]},
    }


def chatting(**options: Any) -> dict[str, Any]:
    """Arguments of a `ScriptedService` that is this pipeline, with those given."""
    return {"plan": chat_plan(), "facts": chat_facts(), "script": converse} | options


def converse(submit: Submit) -> Iterable[Step]:
    """The default script."""
    if submit.outputs == ("transcript",):
        yield from _transcribe(submit)
    elif submit.outputs == ("audio",):
        yield from speak(submit)
    else:
        yield from _answer(submit)


def words_of(submit: Submit) -> list[str]:
    """The default answer, word by word; they join to the whole."""
    turned = asked(submit).split() or ["nothing"]
    start = (submit.seed or 0) % len(turned)
    turned = turned[start:] + turned[:start]
    limit = submit.params.get("max_tokens", len(turned))
    return [word if index == 0 else f" {word}" for index, word in enumerate(turned[:limit])]


def asked(submit: Submit) -> str:
    """The last message, or the prompt."""
    for modality, payload in submit.inputs:
        if modality == "chat" and isinstance(payload, Chat):
            return " ".join(part.text for part in payload.messages()[-1].parts if part.text)
        if modality == "prompt" and isinstance(payload, Prompt):
            return payload.text()
    return ""


def _answer(submit: Submit) -> Iterable[Step]:
    words = words_of(submit)
    for word in words:
        yield SayText(word, _logprobs(word, submit.params))
    if "audio" in submit.outputs:
        yield from chunks_of(tone(len("".join(words)) * SECONDS_PER_CHARACTER))
        yield Report("voice", {"output_tokens": len("".join(words))})
    whole = len(words) < submit.params.get("max_tokens", 1 << 20)
    counts = {"prompt_tokens": 10 + len(asked(submit).split()), "cached_tokens": 4, "completion_tokens": len(words)}
    yield Report("thinker", counts | {"finish_reason": "stop" if whole else "length"})


def _logprobs(word: str, params: dict[str, Any]) -> tuple[TokenLogprob, ...]:
    if not params.get("logprobs"):
        return ()
    ranked = [(word, 0.5), (word.upper(), 0.25), (word[::-1], 0.125)][: params.get("top_logprobs", 0)]
    top = tuple(TokenLogprob(token, token.encode(), log(share)) for token, share in ranked)
    return (TokenLogprob(word, word.encode(), log(0.5), top),)


def _transcribe(submit: Submit) -> Iterable[Step]:
    lengths: dict[int, float] = {}
    for _, payload in submit.inputs:
        if isinstance(payload, Pcm):
            lengths[payload.clip] = lengths.get(payload.clip, 0.0) + payload.samples.size / payload.rate
    for clip, length_s in lengths.items():
        text = f"{length_s:.2f} seconds"
        yield SayTranscript(Transcript(text, clip, 0.0, length_s, "en", last=True, clip_s=length_s))
    yield Report("recogniser", {"audio_s": sum(lengths.values()), "segments": len(lengths)})
