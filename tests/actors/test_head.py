"""The real head with real nodes: what a request meets end to end."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from omnirt.errors import Cancelled, InvalidRequest, NotReady, Overloaded
from omnirt.session.service import Output
from omnirt.testing.live import ask, in_a_loop, read_all, running, text_request
from omnirt.wire.payload import Text


def test_a_request_is_answered_and_leaves_nothing_behind() -> None:
    async def body() -> None:
        async with running("echo") as head:
            answer = await ask(head, text_request("one two  three"))
            assert (answer.code, answer.text) == ("done", "one two  three")
            state = head.state()
            assert (state.state, state.running, state.waiting) == ("ready", 0, 0)
            assert head.condition() == "ready"

    in_a_loop(body())


def test_fused_and_split_stages_give_the_same_answer() -> None:
    words = " ".join(f"word{n}" for n in range(200))

    async def answers(sets: list[str]) -> str:
        async with running("relay", sets=sets) as head:
            return (await ask(head, text_request(words))).text

    fused = ["stage.first.node=one", "stage.second.node=one", "stage.third.node=one"]
    assert in_a_loop(answers([])) == in_a_loop(answers(fused)) == words


@pytest.mark.parametrize("outputs", [("text",), ("text", "audio"), ("audio",)])
def test_the_maze_is_walked_in_real_processes(outputs: tuple[str, ...]) -> None:
    async def body() -> None:
        async with running("maze") as head:
            numbers = [ask(head, text_request(f"{n} {n + 1} {n + 4}", outputs)) for n in range(12)]
            for answer in await asyncio.gather(*numbers):
                assert answer.code == "done"
                assert bool(answer.texts) == ("text" in outputs)
                assert bool(answer.pcm) == ("audio" in outputs)

    in_a_loop(body())


def test_a_request_for_text_never_wakes_the_speech_stage() -> None:
    async def body() -> None:
        async with running("maze") as head:
            await ask(head, text_request("4 5 6", ("text",)))
            stats = await head.stats()
            assert stats["bell.0"]["bell.steps"] == 0

    in_a_loop(body())


def test_streamed_input_extends_the_request_until_it_is_closed() -> None:
    async def body() -> None:
        async with running("echo") as head:
            live = head.submit(text_request("first ", input_open=True))
            live.extend("text", Text("second "))
            reading = asyncio.ensure_future(read_all(live))
            await asyncio.sleep(0.05)
            live.extend("text", Text("third"))
            live.end_input()
            with pytest.raises(Cancelled):
                live.extend("text", Text("too late"))
            answer = await reading
            assert (answer.code, answer.text) == ("done", "first second third")
            with pytest.raises(Cancelled):
                live.extend("text", Text("much too late"))

    in_a_loop(body())


def test_leaving_a_request_cancels_its_work() -> None:
    async def body() -> None:
        async with running("tone", sets=["stage.tone.options.step_ms=2"]) as head:
            async with head.submit(text_request("440 Hz for 60 s", ("audio",))) as live:
                assert isinstance(await live.next(), Output)
            await asyncio.sleep(0.1)
            before = await head.stats()
            await asyncio.sleep(0.1)
            assert before["tone.0"]["tone.steps"] == (await head.stats())["tone.0"]["tone.steps"]
            assert head.state().running == 0

    in_a_loop(body())


def test_a_deadline_ends_a_request_with_a_typed_error() -> None:
    async def body() -> None:
        async with running("tone", sets=["stage.tone.options.step_ms=5"]) as head:
            answer = await ask(head, text_request("440 Hz for 600 s", ("audio",), deadline_s=0.2))
            assert answer.code == "timeout"
            assert head.state().running == 0

    in_a_loop(body())


def test_admission_refuses_beyond_slots_and_queue_and_recovers() -> None:
    async def body() -> None:
        sets = ["limits.requests_max=2", "limits.queue_max=1", "stage.tone.options.step_ms=2"]
        async with running("tone", sets=sets) as head:
            lives = [head.submit(text_request("440 Hz for 0.4 s", ("audio",))) for _ in range(3)]
            assert (head.state().running, head.state().waiting) == (2, 1)
            with pytest.raises(Overloaded):
                head.submit(text_request("440 Hz", ("audio",)))
            answers = await asyncio.gather(*(read_all(live) for live in lives))
            assert [answer.code for answer in answers] == ["done"] * 3
            assert (await ask(head, text_request("440 Hz", ("audio",)))).code == "done"

    in_a_loop(body())


def test_concurrent_streams_keep_to_themselves() -> None:
    async def body() -> None:
        async with running("tone") as head:
            tones = [300 + 17 * n for n in range(48)]
            asked = [ask(head, text_request(f"{hertz} Hz for 0.5 s", ("audio",))) for hertz in tones]
            for hertz, answer in zip(tones, await asyncio.gather(*asked), strict=True):
                phase = (np.arange(12000, dtype=np.int64) * hertz) % 24000
                expected = np.round(8000 * np.sin(phase * (2 * np.pi / 24000))).astype(np.int16)
                assert np.array_equal(answer.samples, expected)

    in_a_loop(body())


def test_a_loading_pipeline_says_so() -> None:
    async def body() -> None:
        async with running("echo", wait=False) as head:
            with pytest.raises(NotReady) as error:
                head.submit(text_request("hello"))
            assert error.value.reason == "model_loading"
            assert head.state().state == head.condition() == "loading"

    in_a_loop(body())


def test_a_modality_the_pipeline_does_not_take_is_refused() -> None:
    async def body() -> Any:
        async with running("echo") as head:
            with pytest.raises(InvalidRequest):
                head.submit(text_request("hello", ()))

    in_a_loop(body())
