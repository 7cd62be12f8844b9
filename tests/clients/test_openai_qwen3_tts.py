"""Qwen3-TTS through the OpenAI SDK: the real runtime, engine and decoder with small random checkpoints on a processor.

What comes out is noise; its lengths, its order and what it depends on are those of real weights.
"""

import base64
import io
import itertools
import wave
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest

FRAMES = 12
FRAME_BYTES = 1920 * 2
FORCED = {"max_new_tokens": FRAMES, "ignore_eos": True}


def say(client, text="Hello there.", voice="vivian", **extra):
    body = {**FORCED, "seed": 5, **extra}
    return client.audio.speech.create(
        model="tts-1", voice=voice, input=text, response_format="pcm", extra_body=body
    ).content


def recording(hertz=220, seconds=2.0, rate=24_000):
    t = np.arange(int(seconds * rate)) / rate
    samples = (np.sin(2 * np.pi * hertz * t) * 12_000 + np.sin(2 * np.pi * 3.1 * hertz * t) * 4_000).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return file.getvalue()


def as_url(data):
    return "data:audio/wav;base64," + base64.b64encode(data).decode()


def alike(one, other):
    """But for the last bit: how the decoder's pieces are cut depends on time, and its sums round with the cut."""
    left, right = (np.frombuffer(data, "<i2").astype(int) for data in (one, other))
    return len(left) == len(right) and np.abs(left - right).max() <= 1


@pytest.fixture
def speaker(speaker_server, connect):
    return connect(speaker_server)


@pytest.fixture
def clone(clone_server, connect):
    return connect(clone_server, timeout=120)


def test_a_voice_says_a_text_in_as_many_frames_as_were_asked_for(speaker):
    assert len(say(speaker)) == FRAMES * FRAME_BYTES


def test_the_same_request_has_the_same_answer_alone_and_among_others(speaker):
    alone = [say(speaker, f"Text number {at}.", seed=at) for at in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda at: say(speaker, f"Text number {at}.", seed=at), range(4)))
    assert all(alike(one, other) for one, other in zip(alone, together, strict=True))


def test_text_voice_language_instructions_and_seed_all_matter(speaker):
    first = say(speaker)
    assert alike(first, say(speaker))
    others = [
        say(speaker, "Another text."),
        say(speaker, voice="ryan"),
        say(speaker, language="French"),
        say(speaker, instructions="Speak slowly."),
        say(speaker, seed=6),
        say(speaker, temperature=0.3),
    ]
    assert not any(alike(one, other) for one, other in itertools.combinations([first, *others], 2))


def test_audio_streams_and_the_first_packet_is_one_frame(speaker):
    with speaker.audio.speech.with_streaming_response.create(
        model="tts-1", voice="vivian", input="Hello there.", response_format="pcm", extra_body=FORCED
    ) as response:
        chunks = [chunk for chunk in response.iter_bytes() if chunk]
    assert sum(map(len, chunks)) == FRAMES * FRAME_BYTES
    assert len(chunks) > 1


def test_the_model_may_end_by_itself_within_what_its_text_can_take(speaker):
    data = speaker.audio.speech.create(model="tts-1", voice="vivian", input="Hi.", response_format="pcm").content
    assert len(data) % FRAME_BYTES == 0


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"voice": "nobody"}, "voice"),
        ({"language": "Klingon"}, "language"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"ref_audio": as_url(b"RIFF")}, "ref_audio"),
    ],
)
def test_what_is_wrong_is_a_400_that_names_the_field(speaker, extra, param):
    with pytest.raises(openai.BadRequestError) as caught:
        say(speaker, **extra)
    assert caught.value.param == param
    assert len(say(speaker)) == FRAMES * FRAME_BYTES


def test_a_recording_lends_its_voice(clone):
    first = say(clone, voice="default", ref_audio=as_url(recording(220)), ref_text="What is said there.")
    assert len(first) == FRAMES * FRAME_BYTES
    again = say(clone, voice="default", ref_audio=as_url(recording(220)), ref_text="What is said there.")
    assert alike(first, again)
    other = say(clone, voice="default", ref_audio=as_url(recording(330)), ref_text="What is said there.")
    assert not alike(first, other)
    alone = say(clone, voice="default", ref_audio=as_url(recording(220)), x_vector_only_mode=True)
    assert len(alone) == FRAMES * FRAME_BYTES
    assert not alike(alone, first)


def test_a_clone_without_its_recording_or_its_text_says_what_is_missing(clone):
    with pytest.raises(openai.BadRequestError) as caught:
        say(clone, voice="default", ref_audio=as_url(recording()))
    assert caught.value.param == "ref_text"
    with pytest.raises(openai.BadRequestError) as caught:
        say(clone, voice="default")
    assert caught.value.param in ("ref_audio", "voice")


def test_an_uploaded_voice_speaks_like_its_recording(clone, clone_server):
    data = recording(260)
    made = clone.post(
        "/audio/voices",
        cast_to=object,
        body={"name": "ada", "consent": "yes", "ref_text": "What is said there."},
        files={"audio_sample": ("ada.wav", data, "audio/wav")},
        options={"headers": {"Content-Type": "multipart/form-data"}},
    )
    assert made["name"] == "ada"
    spoken = say(clone, voice="ada")
    assert alike(spoken, say(clone, voice="default", ref_audio=as_url(data), ref_text="What is said there."))
    clone.delete(f"/audio/voices/{made['id']}", cast_to=object)
    with pytest.raises(openai.BadRequestError):
        say(clone, voice="ada")


def test_sixteen_clones_at_once_each_have_their_own_voice(clone):
    hertz = [110, 180, 290, 470, 760, 1_230, 2_000, 3_200]

    def copy(tone):
        return say(clone, voice="default", ref_audio=as_url(recording(tone, 1.0)), ref_text="What is said there.")

    alone = {tone: copy(tone) for tone in hertz}
    assert not any(alike(one, other) for one, other in itertools.combinations(alone.values(), 2))
    with ThreadPoolExecutor(16) as pool:
        for tone, data in zip(hertz * 2, pool.map(copy, hertz * 2), strict=True):
            assert alike(data, alone[tone]), tone
