"""What `bench/serve` asks: for each workload the n-th request, the same for the same seed."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

TOPICS = (
    "the moon", "bread", "bicycles", "whales", "glass", "winter", "coffee", "bridges", "honey bees", "volcanoes",
    "jazz", "tides", "maps", "cheese", "lightning", "deserts", "clocks", "the alphabet", "gardens", "trains", "salt",
    "owls", "paper", "rivers",
)  # fmt: skip
QUESTIONS = (
    "Tell me one interesting fact about {}.",
    "Explain {} to a child in a few words.",
    "What should everybody know about {}?",
    "Write a short poem about {}.",
    "Why do people like {}?",
    "Name three things that have to do with {}.",
    "How did {} change history?",
    "Give me some advice about {}.",
    "What is a common mistake about {}?",
    "Describe {} without using its name.",
    "What would the world be like without {}?",
    "Which question about {} would you ask an expert?",
)
SENTENCES = (
    "The morning train was late again, so we waited on the platform and watched the rain.",
    "A woman with a red umbrella was reading a newspaper about {}.",
    "Nobody had thought much about {} before that day.",
    "When the doors finally opened, everyone was talking about {}.",
    "It would be a slow and quiet day, and a good one to learn something new.",
    "Two children asked their teacher about {} and would not stop asking.",
)
SPEECH_SENTENCES = 3
BOUNDARY = "a-boundary-that-no-recording-holds"
WORKLOADS = ("chat-text", "chat-audio", "chat-spoken", "speech", "transcription")
PCM16_RATE = 24_000
"""What raw samples are taken for where an answer does not say."""


class Ask(NamedTuple):
    """`reads`: how the answer is read, see `serve_read.READERS`. `sent_s`: length of the recording that is sent."""

    path: str
    content_type: str
    body: bytes
    reads: str
    sent_s: float = 0.0


class Settings(NamedTuple):
    workload: str
    seed: int = 1
    model: str = ""
    voice: str = ""
    tokens: int = 0
    """Exactly so many, if not 0."""
    max_tokens: int = 64
    temperature: float | None = None


class Recording(NamedTuple):
    wav: bytes
    seconds: float


def prompts(seed: int) -> list[str]:
    """All of them, in an order of its own for each seed."""
    whole = [question.format(topic) for question in QUESTIONS for topic in TOPICS]
    random.Random(seed).shuffle(whole)
    return whole


def paragraphs(seed: int) -> list[str]:
    """As many texts to speak: three sentences each."""
    order = random.Random(seed)
    chosen = [
        (order.sample(SENTENCES, SPEECH_SENTENCES), order.sample(TOPICS, SPEECH_SENTENCES)) for _ in prompts(seed)
    ]
    return [" ".join(map(str.format, sentences, topics)) for sentences, topics in chosen]


def asks(settings: Settings, recordings: list[Recording]) -> Callable[[int], Ask]:
    """The n-th request of a workload. `recordings`: of the first questions, for the workloads that send them."""
    questions, texts = prompts(settings.seed), paragraphs(settings.seed)

    def make(number: int) -> Ask:
        if settings.workload == "speech":
            return speech(settings, texts[number % len(texts)], settings.seed + abs(number))
        if settings.workload == "transcription":
            return transcription(settings, recordings[number % len(recordings)])
        if settings.workload == "chat-spoken":
            return chat(settings, recordings[number % len(recordings)], settings.seed + abs(number))
        return chat(settings, questions[number % len(questions)], settings.seed + abs(number))

    return make


def chat(settings: Settings, question: str | Recording, seed: int) -> Ask:
    content: object = question
    if isinstance(question, Recording):
        content = [{"type": "input_audio", "input_audio": {"data": _base64(question.wav), "format": "wav"}}]
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "modalities": ["text"],
        "seed": seed,
        "max_tokens": settings.tokens or settings.max_tokens,
    }
    if settings.workload != "chat-text":
        body |= {"modalities": ["text", "audio"], "audio": {"format": "pcm16"}}
        body["audio"] |= {"voice": settings.voice} if settings.voice else {}
    if settings.tokens:  # fields beyond the API, that servers of language models know
        body |= {"ignore_eos": True, "min_tokens": settings.tokens}
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    sent_s = question.seconds if isinstance(question, Recording) else 0.0
    return Ask("/v1/chat/completions", "application/json", _json(body, settings), "events", sent_s)


def speech(settings: Settings, text: str, seed: int) -> Ask:
    body: dict[str, Any] = {"input": text, "response_format": "pcm", "stream": True, "stream_format": "audio"}
    body |= {"seed": seed} | ({"voice": settings.voice} if settings.voice else {})
    return Ask("/v1/audio/speech", "application/json", _json(body, settings), "samples")


def transcription(settings: Settings, recording: Recording) -> Ask:
    fields = {"response_format": "json"} | ({"model": settings.model} if settings.model else {})
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(
        b'Content-Disposition: form-data; name="file"; filename="question.wav"\r\nContent-Type: audio/wav\r\n\r\n'
        + recording.wav
    )
    body = b"".join(b"--%b\r\n%b\r\n" % (BOUNDARY.encode(), part) for part in parts) + f"--{BOUNDARY}--\r\n".encode()
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return Ask("/v1/audio/transcriptions", kind, body, "whole", recording.seconds)


def _json(body: dict[str, Any], settings: Settings) -> bytes:
    return json.dumps(body | ({"model": settings.model} if settings.model else {})).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
