"""One request at the gateway, with given times."""

import asyncio

import pytest

from omnirt.errors import Overloaded, StageFailed
from omnirt.metrics import Metrics
from omnirt.track import Buckets

MS = 1_000_000


class Clock:
    def __init__(self):
        self.ns = 5_000 * MS

    def __call__(self):
        return self.ns

    def sleep(self, ms):
        self.ns += ms * MS


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ended():
    return []


@pytest.fixture
def metrics(clock, ended):
    return Metrics(ended.append, clock)


def figures(metrics, surface="chat"):
    return metrics._surfaces[surface]


def seen(buckets):
    """Count and sum in exposed units."""
    return sum(buckets.counts), pytest.approx(buckets.total / buckets.unit)


def test_text_is_timed_from_the_beginning_and_then_from_one_to_the_next(metrics, clock):
    track = metrics.track("chat")
    for wait_ms in (40, 10, 30):
        clock.sleep(wait_ms)
        track.text()
    found = figures(metrics)
    assert seen(found.ttft) == (1, 0.04)
    assert seen(found.text_gaps) == (2, 0.04)
    assert found.tokens == 3
    assert seen(found.ttfp)[0] == 0


def test_the_first_packet_is_the_first_that_is_not_empty(metrics, clock):
    track = metrics.track("speech")
    clock.sleep(10)
    track.audio(0, 24_000)
    clock.sleep(10)
    track.audio(2400, 24_000)
    clock.sleep(150)
    track.audio(2400, 24_000)
    found = figures(metrics, "speech")
    assert seen(found.ttfp) == (1, 0.02)
    assert seen(found.audio_gaps) == (1, 0.15)
    assert found.audio_s == pytest.approx(0.2)
    assert (found.underruns, found.dry_ns) == (1, 50 * MS)


def test_real_time_factor_is_the_whole_time_over_the_length_of_the_audio(metrics, clock):
    track = metrics.track("speech")
    clock.sleep(500)
    track.audio(48_000, 24_000)
    clock.sleep(500)
    track.done()
    found = figures(metrics, "speech")
    assert seen(found.rtf) == (1, 0.5)
    assert seen(found.e2e) == (1, 1.0)


def test_of_a_transcription_the_audio_is_what_was_heard(metrics, clock):
    track = metrics.track("transcription")
    clock.sleep(100)
    track.text()
    track.done({"recogniser": {"audio_s": 2.0}})
    assert seen(figures(metrics, "transcription").rtf) == (1, 0.05)
    chat = metrics.track("chat")
    chat.done({"recogniser": {"audio_s": 2.0}})
    assert seen(figures(metrics).rtf)[0] == 0
    assert figures(metrics).heard_s == 2.0


def test_exactly_one_end_counts(metrics, ended):
    track = metrics.track("chat", "r1")
    track.ended("timeout")
    track.done()
    track.ended("client_gone")
    assert figures(metrics).outcomes == {"timeout": 1}
    assert seen(figures(metrics).e2e)[0] == 0
    assert [(line.request, line.outcome) for line in ended] == [("r1", "timeout")]


def test_a_track_without_an_end_counts_nothing(metrics, ended):
    metrics.track("chat")
    assert not figures(metrics).outcomes
    assert not ended


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Overloaded("full"), "queue_full"),
        (StageFailed("bad", stage="voice"), "stage_failed"),
        (asyncio.CancelledError(), "client_gone"),
        (ConnectionResetError(), "client_gone"),
        (ValueError("a mistake of ours"), "internal_error"),
    ],
)
def test_what_is_raised_ends_it_under_its_own_code(metrics, ended, error, outcome):
    with pytest.raises(type(error)), metrics.track("chat"):
        raise error
    assert figures(metrics).outcomes == {outcome: 1}
    assert ended[0].detail == {"queue_full": "full", "stage_failed": "voice: bad"}.get(outcome, "")


def test_an_error_after_the_end_changes_nothing(metrics):
    track = metrics.track("chat")
    track.done()
    with pytest.raises(ConnectionResetError), track:
        raise ConnectionResetError
    assert figures(metrics).outcomes == {"ok": 1}


def report(opened, first_step, first_out, ended, busy, **values):
    times = {"opened_ns": opened, "first_step_ns": first_step, "first_out_ns": first_out, "ended_ns": ended}
    return {name: at * MS for name, at in times.items()} | {"busy_ns": busy * MS, "steps": 3} | values


def test_stages_are_counted_by_what_they_reported(metrics, clock):
    track = metrics.track("chat")
    clock.sleep(300)
    track.done({"thinker": report(5020, 5030, 5070, 5200, 90), "voice": report(5021, 5080, 0, 5250, 60)})
    thinker, voice = metrics._stages["thinker"], metrics._stages["voice"]
    assert seen(thinker.wait) == (1, 0.01)
    assert seen(thinker.first_output) == (1, 0.05)
    assert seen(thinker.busy) == (1, 0.09)
    assert seen(thinker.whole) == (1, 0.18)
    assert seen(voice.first_output)[0] == 0
    assert seen(figures(metrics).queue) == (1, 0.02)
    assert track.timeline.admitted_ns == 5020 * MS


def test_tokens_are_those_the_stages_counted_where_that_is_more(metrics):
    track = metrics.track("chat")
    track.text()
    track.text(3)
    track.done({"thinker": {"completion_tokens": 9, "prompt_tokens": 20, "cached_tokens": 16}})
    found = figures(metrics)
    assert (found.tokens, found.prompt_tokens, found.cached_tokens) == (9, 20, 16)
    assert seen(metrics._stages["thinker"].whole)[0] == 0, "a report without times has none"


def test_several_requests_of_the_pipeline_may_be_one_of_the_client(metrics):
    track = metrics.track("chat")
    track.done({"thinker": {"completion_tokens": 4}}, {"thinker": {"completion_tokens": 5}})
    assert figures(metrics).tokens == 9
    assert figures(metrics).outcomes == {"ok": 1}


def test_a_report_that_makes_no_sense_spoils_nothing(metrics):
    track = metrics.track("chat")
    track.done({"thinker": {"completion_tokens": "many", "prompt_tokens": -5, "opened_ns": 0, "ended_ns": 7}})
    assert figures(metrics).outcomes == {"ok": 1}
    assert (figures(metrics).tokens, figures(metrics).prompt_tokens) == (0, 0)


def test_the_clock_may_have_started_earlier(metrics, clock):
    track = metrics.track("chat", arrived_ns=clock() - 20 * MS)
    track.text()
    assert seen(figures(metrics).ttft) == (1, 0.02)


def test_a_value_on_an_edge_lies_below_it():
    buckets = Buckets((0.1, 0.2), 1000)
    for value in (100, 101, 200, 201):
        buckets.add(value)
    assert buckets.counts == [1, 2, 1]
    assert buckets.total == 602
