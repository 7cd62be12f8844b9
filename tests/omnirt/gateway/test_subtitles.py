"""Subtitles, character by character."""

import re

from hypothesis import given
from hypothesis import strategies as st

from omnirt.gateway.subtitles import cues_of, srt, vtt
from omnirt.wire.payload import Transcript

SEGMENTS = [
    Transcript(" Hello there.", start_s=0.5, end_s=1.25),
    Transcript("", start_s=1.25, end_s=2.0),
    Transcript(" A < B & C\n\n--> D", start_s=3599.9996, end_s=3661.001),
]


def test_subrip_to_the_letter():
    assert srt(SEGMENTS, 4000.0) == (
        "1\n00:00:00,500 --> 00:00:01,250\nHello there.\n\n2\n01:00:00,000 --> 01:01:01,001\nA < B & C -> D\n"
    )


def test_webvtt_to_the_letter():
    assert vtt(SEGMENTS, 4000.0) == (
        "WEBVTT\n"
        "\n00:00:00.500 --> 00:00:01.250\nHello there.\n"
        "\n01:00:00.000 --> 01:01:01.001\nA &lt; B &amp; C -&gt; D\n"
    )


def test_nothing_said_is_a_file_without_cues():
    assert srt([], 4.0) == ""
    assert vtt([Transcript(" ")], 4.0) == "WEBVTT\n"


def test_stretches_without_times_last_until_the_next_one():
    segments = [Transcript("a"), Transcript("b", start_s=2.0, end_s=2.0), Transcript("c", start_s=5.0)]
    assert [(cue.start_ms, cue.end_ms) for cue in cues_of(segments, 9.0)] == [(0, 2000), (2000, 5000), (5000, 9000)]
    assert [(cue.start_ms, cue.end_ms) for cue in cues_of([Transcript("a")], 0.0)] == [(0, 1000)]


@given(
    st.lists(
        st.builds(
            Transcript,
            text=st.text(max_size=40),
            start_s=st.floats(0, 400_000),
            end_s=st.floats(0, 400_000),
        ),
        max_size=5,
    )
)
def test_whatever_was_said_the_files_keep_their_form(segments):
    spoken = [segment for segment in segments if segment.text.strip()]
    for text, point in ((srt(segments, 10.0), ","), (vtt(segments, 10.0), r"\.")):
        time = rf"\d\d+:[0-5]\d:[0-5]\d{point}\d\d\d"
        assert len(re.findall(rf"(?m)^{time} --> {time}$", text)) == len(spoken)
    for cue in cues_of(segments, 10.0):
        assert cue.start_ms < cue.end_ms
        assert cue.text.strip()
        assert len(cue.text.splitlines()) == 1
