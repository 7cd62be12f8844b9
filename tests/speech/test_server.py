"""Speech as a client gets it: an unmodified SDK, HTTP, two node processes and the rings between them."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest

from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.live_gateway import LiveGateway

RATE = 24_000
WAV_HEADER_BYTES = 44
PARAGRAPH = (
    "The morning train was late again, so we waited on the platform and watched the rain. A woman with a red umbrella "
    "was reading a newspaper, and two children were counting the pigeons on the roof. When the train finally came, "
    "nobody hurried, because everyone knew that the whole day would be slow and quiet and a little bit sad anyway."
)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveGateway]:
    def start() -> Any:
        head = resolve("omnirt.actors.head:Head")(load_plan("speech"), asyncio.get_running_loop())
        head.start()
        return head

    with LiveGateway(start, close=lambda head: head.close()) as gateway:
        gateway.until(lambda: gateway.service.state().state == "ready")
        yield gateway


@pytest.fixture(scope="module")
def client(server: LiveGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60) as sdk:
        yield sdk


def samples_of(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2")


@pytest.mark.slow
def test_twenty_sentences_are_understood_through_http(client: openai.OpenAI, sentences: Any, hearing: Any) -> None:
    answers: list[tuple[str, np.ndarray, int]] = []
    for sentence in sentences:
        body = client.audio.speech.create(
            model="speech", voice="heart", input=sentence, response_format="wav", extra_body={"seed": 1}
        ).content
        answers.append((sentence, samples_of(body[WAV_HEADER_BYTES:]), RATE))
    heard = hearing(answers)
    assert heard.rate <= 0.03, heard.differences


def test_a_paragraph_streams_and_is_the_same_as_in_one_piece(client: openai.OpenAI, server: LiveGateway) -> None:
    request: dict[str, Any] = {"model": "speech", "voice": "heart", "input": PARAGRAPH, "response_format": "wav"}
    pieces: list[bytes] = []
    with client.audio.speech.with_streaming_response.create(**request, extra_body={"seed": 7}) as answer:
        pieces.extend(answer.iter_bytes(4096))
    streamed = b"".join(pieces)
    whole = server.ask("POST", "/v1/audio/speech", {**request, "seed": 7, "stream": False}).body
    with wave.open(io.BytesIO(whole)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        assert file.readframes(file.getnframes()) == streamed[WAV_HEADER_BYTES:]


def test_seams_between_chunks_cannot_be_told_from_the_rest(client: openai.OpenAI) -> None:
    """No step between neighbouring samples at a chunk's edge is larger than the largest inside chunks."""
    request: dict[str, Any] = {"model": "speech", "voice": "heart", "input": PARAGRAPH, "response_format": "pcm"}
    with client.audio.speech.with_streaming_response.create(**request, extra_body={"seed": 7}) as answer:
        chunks = [samples_of(piece) for piece in answer.iter_bytes() if len(piece) % 2 == 0]
    steps = np.abs(np.diff(np.concatenate(chunks).astype(np.int32)))
    seams = np.cumsum([len(chunk) for chunk in chunks])[:-1] - 1
    inside = np.delete(steps, seams)
    assert len(seams) >= 3
    assert steps[seams].max() <= inside.max()


def test_a_text_without_a_readable_letter_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.speech.create(model="speech", voice="heart", input="\u4f60\u597d")
    assert refused.value.param == "input"


def test_the_voices_of_the_openai_api_are_spoken_by_the_one_there_is(client: openai.OpenAI) -> None:
    assert client.audio.speech.create(model="tts-1", voice="alloy", input="Hi.", response_format="mp3").content


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", ""),
        ("input", " \n\t"),
        ("input", None),
        ("input", ["Hi."]),
        ("input", "a" * 4097),
        ("voice", ""),
        ("voice", "nobody"),
        ("voice", {}),
        ("speed", 0),
        ("speed", "fast"),
        ("speed", 10**400),
        ("max_new_tokens", 0),
        ("max_new_tokens", 10**9),
        ("instructions", "x" * 10_000),
        ("ref_audio", "ftp://a/b"),
        ("ref_audio", "javascript:x"),
        ("task_type", "Base"),
        ("language", "Klingon"),
        ("normalize", "no"),
        ("normalize", {}),
    ],
)
def test_a_bad_field_is_named_and_every_stage_stays(server: LiveGateway, field: str, value: Any) -> None:
    answer = server.ask("POST", "/v1/audio/speech", {"input": "Hi.", field: value})
    assert (answer.status, answer.error()["param"]) == (400, field)
    assert server.call(lambda: server.service.state().state) == "ready"


def test_everyone_gets_what_they_get_alone_also_under_one_name(server: LiveGateway, sentences: Any) -> None:
    def say(number: int) -> bytes:
        body = {"input": " ".join(sentences[number : number + 2]), "response_format": "pcm", "seed": number}
        answer = server.ask("POST", "/v1/audio/speech", body, {"X-Request-Id": "the same"})
        assert answer.status == 200
        return answer.body

    alone = [say(number) for number in range(6)]
    with ThreadPoolExecutor(18) as clients:
        together = list(clients.map(say, [number % 6 for number in range(18)]))
    assert together == alone * 3


@pytest.mark.parametrize("text", ["\U0001f600", "?!", "a", "a\x00b", "caf\u0065\u0301", "<b>x</b>", "_" * 4096])
def test_odd_texts_are_spoken(server: LiveGateway, text: str) -> None:
    answer = server.ask("POST", "/v1/audio/speech", {"input": text, "response_format": "pcm"})
    assert answer.status == 200
    assert 0.1 * 2 * RATE <= len(answer.body) < 10 * 2 * RATE
