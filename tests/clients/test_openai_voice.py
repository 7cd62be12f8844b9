"""What only real weights can show, through the OpenAI SDK: that what is said is understood, answered and pronounced,
that an answer depends on its request alone, and that every count is exact."""

import base64
import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from omnirt.gateway.media import wav_header

RATE = 24_000
WORD_ERRORS_MAX = 0.05
SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "heart", "format": "pcm16"}}
QUESTIONS = {
    "What is the capital of France?": "Paris",
    "How many days are in a week?": "7|seven",
    "What color is the sky on a clear day?": "blue",
}
LONG = "Tell me a long story about a dog and a cat who go to the sea."
STORYTELLER = {"role": "system", "content": "You are a storyteller. Your stories are long."}
SPEAKING = ("acoustic", "synthesis")
HEARING = ("voice_activity", "recogniser")


@pytest.fixture
def client(voice_server, connect):
    return connect(voice_server, timeout=120)


@pytest.fixture
def ask(client):
    """ask("text" or parts, fields...) -> the answer."""

    def chat(content, **fields):
        messages = [{"role": "user", "content": content}]
        return client.chat.completions.create(**{"model": "voice", "messages": messages, "seed": 5} | fields)

    return chat


@pytest.fixture
def say(client):
    """say("text") -> it as a recording, in the server's own voice."""

    def speak(text):
        speech = {"model": "voice", "voice": "heart", "input": text, "response_format": "pcm"}
        samples = client.audio.speech.create(**speech, extra_body={"seed": 1}).content
        return wav_header(RATE, len(samples)) + samples

    return speak


@pytest.fixture
def steps(voice_server):
    """How often each stage has worked."""

    def count():
        text = voice_server.ask("GET", "/metrics").body.decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {s.labels["stage"]: s.value for s in samples if s.name == "omnirt_stage_steps_total"}

    return count


def recording(wav):
    return [{"type": "input_audio", "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"}}]


def text_of(answer, index=0):
    return answer.choices[index].message.content


def joined(chunks, index=0):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index)


def sound_of(answer):
    return base64.b64decode(answer.choices[0].message.audio.data)


# ------------------------------------------------------------ hearing, thinking, speaking


def test_a_spoken_question_gets_a_spoken_answer_that_is_understood(ask, say, hearing):
    answers = []
    for question, word in QUESTIONS.items():
        answer = ask(recording(say(question)), **SPOKEN, temperature=0)
        said = answer.choices[0].message.audio.transcript
        assert re.search(word, said), f"{said!r} to {question!r}"
        assert said == text_of(answer)
        answers.append((said, np.frombuffer(sound_of(answer), np.int16), RATE))
    heard = hearing(answers)
    assert heard.rate <= WORD_ERRORS_MAX, heard.differences


def test_a_spoken_question_is_answered_as_the_same_in_writing(ask, say):
    question, word = next(iter(QUESTIONS.items()))
    assert text_of(ask(recording(say(question)), temperature=0)) == text_of(ask(question, temperature=0))
    system = {"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."}
    parts = [{"type": "text", "text": "Listen, and answer."}, *recording(say(question))]
    assert word in text_of(ask(None, messages=[system, {"role": "user", "content": parts}], temperature=0))


def test_a_request_wakes_only_the_stages_between_what_it_gives_and_what_it_asks_for(client, ask, say, steps):
    wav = say("What is the capital of France?")
    resting = {
        (*HEARING, *SPEAKING): lambda: (list(ask("Hello.", stream=True)), ask("Hello.", n=2)),
        (*HEARING, "thinker"): lambda: say("Hello."),
        ("thinker", *SPEAKING): lambda: client.audio.transcriptions.create(model="voice", file=("a.wav", wav)),
        SPEAKING: lambda: ask(recording(wav)),
        HEARING: lambda: ask("Hello.", **SPOKEN),
    }
    for stages, work in resting.items():
        before = steps()
        work()
        after = steps()
        woken = {stage for stage in after if after[stage] != before[stage]}
        assert woken == set(after) - set(stages)


def test_a_transcription_has_every_word_with_its_time(client, say):
    said = "The weather is nice today. Shall we go for a walk in the park after lunch?"
    wav = say(said)
    verbose = {"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]}
    heard = client.audio.transcriptions.create(model="voice", file=("a.wav", wav), **verbose)
    words = [re.sub(r"\W", "", word.word).lower() for word in heard.words]
    assert words == re.sub(r"[^a-z ]", "", said.lower()).split()
    times = [time for word in heard.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[0] < 1.0
    assert heard.duration - 1.0 < times[-1] <= heard.duration
    for segment in heard.segments:
        inside = [word.word for word in heard.words if segment.start - 0.3 <= word.start <= segment.end]
        assert " ".join(inside).strip() == segment.text.strip()


# ------------------------------------------------------------ an answer depends on its request alone


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_a_stream_is_the_answer(ask, temperature):
    fields = {"temperature": temperature, "max_tokens": 32}
    whole = ask("Tell me about the sea.", **fields)
    chunks = list(ask("Tell me about the sea.", **fields, stream=True, stream_options={"include_usage": True}))
    assert joined(chunks) == text_of(whole)
    # What was kept of the first one's prompt is not computed again.
    counts = [usage.model_dump(exclude={"prompt_tokens_details"}) for usage in (whole.usage, chunks[-1].usage)]
    assert counts[0] == counts[1]


def test_conversations_at_once_are_what_each_is_alone(ask):
    asked = [
        ("What is the capital of Italy?", SPOKEN | {"temperature": 0, "max_tokens": 16}),
        ("Name three colors.", SPOKEN | {"temperature": 0.8, "seed": 3, "max_tokens": 16}),
        ("Tell me about the sea.", {"temperature": 0.8, "seed": 4, "max_tokens": 24}),
    ]
    alone = [ask(text, **fields) for text, fields in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda each: ask(each[0], **each[1]), asked))
    for one, other in zip(alone, together, strict=True):
        assert text_of(one) == text_of(other)
        assert (one.choices[0].message.audio is None) == (other.choices[0].message.audio is None)
        if one.choices[0].message.audio:
            assert sound_of(one) == sound_of(other)


def test_several_answers_each_have_a_seed_of_their_own(ask):
    fields = {"temperature": 1.2, "max_tokens": 16}
    one = ask("Tell me about the sea.", **fields)
    two = ask("Tell me about the sea.", **fields, n=2)
    assert text_of(two) == text_of(one)
    assert text_of(two, 1) != text_of(two)
    assert two.usage.prompt_tokens == one.usage.prompt_tokens, "asked once"
    assert two.usage.completion_tokens > one.usage.completion_tokens
    chunks = list(ask("Tell me about the sea.", **fields, n=2, stream=True))
    assert [joined(chunks, index) for index in (0, 1)] == [text_of(two), text_of(two, 1)]
    assert text_of(ask("Tell me about the sea.", **fields, seed=6)) != text_of(one)


# ------------------------------------------------------------ ends and counts


@pytest.mark.parametrize("fields", [{}, SPOKEN])
def test_closing_a_stream_ends_the_request_in_every_stage(voice_server, ask, steps, fields):
    stream = ask(LONG, **fields, max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
    next(stream)
    assert voice_server.call(voice_server.service.state).running == 1
    stream.close()
    voice_server.until(lambda: voice_server.service.state().running == 0)
    rest = steps()
    assert text_of(ask("Hello.", max_tokens=4))
    after = steps()
    assert after["thinker"] - rest["thinker"] < 20, "nobody works on what nobody waits for"
    assert all(after[stage] == rest[stage] for stage in SPEAKING)


def test_a_long_answer_ends_before_a_stop_string_wherever_it_falls(ask):
    messages = [STORYTELLER, {"role": "user", "content": LONG}]
    fields = {"messages": messages, "temperature": 0, "max_tokens": 80}
    whole = text_of(ask(None, **fields))
    assert len(whole) > 150
    for stop in (whole[90:97], whole[120:121], whole[101:115]):
        expected = whole[: whole.index(stop)]
        answer = ask(None, **fields, stop=["not in there at all", stop])
        assert text_of(answer) == expected
        assert answer.choices[0].finish_reason == "stop"
        chunks = list(ask(None, **fields, stop=stop, stream=True))
        assert joined(chunks) == expected
        assert [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason] == ["stop"]


def test_log_probabilities_are_those_of_what_was_said(ask):
    fields = {"temperature": 0, "logprobs": True, "top_logprobs": 5, "max_tokens": 24}
    answer = ask("What is the capital of France?", **fields)
    tokens = answer.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == text_of(answer)
    assert math.exp(sum(token.logprob for token in tokens) / len(tokens)) > 0.5, "it is sure of what it says"
    for token in tokens:
        shares = [math.exp(top.logprob) for top in token.top_logprobs]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1.001
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, token.top_logprobs[0].logprob)
    chunks = ask("What is the capital of France?", **fields, stream=True)
    streamed = [
        token for chunk in chunks for c in chunk.choices for token in (c.logprobs.content if c.logprobs else ())
    ]
    assert [token.token for token in streamed] == [token.token for token in tokens]
    assert np.allclose([token.logprob for token in streamed], [token.logprob for token in tokens], atol=1e-4)


def test_usage_is_exact(client, ask):
    raw = client.completions.create(model="voice", prompt="The quick brown fox", max_tokens=7, temperature=0)
    assert (raw.usage.prompt_tokens, raw.usage.completion_tokens, raw.usage.total_tokens) == (4, 7, 11)
    assert raw.choices[0].finish_reason == "length"
    cut = ask(LONG, max_tokens=9, logprobs=True)
    assert cut.usage.completion_tokens == len(cut.choices[0].logprobs.content) == 9
    assert cut.choices[0].finish_reason == "length"
    longer = ask(f"{LONG} The quick brown fox", max_tokens=9)
    assert longer.usage.prompt_tokens == cut.usage.prompt_tokens + 4
    fields = SPOKEN | {"max_tokens": 9}
    *_, last = ask(LONG, **fields, stream=True, stream_options={"include_usage": True})
    whole = ask(LONG, **fields)
    for usage in (last.usage, whole.usage):
        assert usage.prompt_tokens == cut.usage.prompt_tokens
        assert usage.completion_tokens_details.text_tokens == 9
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert last.usage.completion_tokens == whole.usage.completion_tokens
