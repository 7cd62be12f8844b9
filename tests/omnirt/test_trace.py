"""Timelines as files, with given times."""

import json

from omnirt.trace import Timeline, trace_json

MS = 1_000_000


def drawn(timeline):
    """The file, and (track's name, event's name) -> event."""
    whole = json.loads(trace_json(timeline))
    tracks = {event["tid"]: event["args"]["name"] for event in whole["traceEvents"] if event["name"] == "thread_name"}
    events = {(tracks[event["tid"]], event["name"]): event for event in whole["traceEvents"] if event["ph"] != "M"}
    return whole, events


def report(opened, first_step, first_out, ended, **values):
    times = {"opened_ns": opened, "first_step_ns": first_step, "first_out_ns": first_out, "ended_ns": ended}
    return {name: at * MS for name, at in times.items()} | {"busy_ns": 5 * MS, "steps": 2} | values


def chat():
    return Timeline(
        "chat",
        "req_1",
        arrived_ns=1000 * MS,
        arrived_unix_s=1_700_000_000,
        admitted_ns=1002 * MS,
        first_text_ns=1050 * MS,
        first_audio_ns=1100 * MS,
        ended_ns=1300 * MS,
        outcome="ok",
        tokens=12,
        audio_s=1.5,
        reports=(
            {
                "voice": report(1001, 1060, 1099, 1290),
                "thinker": report(1002, 1004, 1049, 1200, completion_tokens=12),
            },
        ),
    )


def test_the_gateway_has_its_track_with_all_that_a_client_saw():
    whole, events = drawn(chat())
    assert whole["otherData"] == {
        "request": "req_1", "surface": "chat", "outcome": "ok", "arrived_unix_s": 1_700_000_000,
    }  # fmt: skip
    span = events["gateway", "request"]
    assert (span["ph"], span["ts"], span["dur"]) == ("X", 0, 300_000)
    assert span["args"] == {"outcome": "ok", "tokens": 12, "audio_s": 1.5}
    marks = {name: event["ts"] for (track, name), event in events.items() if track == "gateway" and event["ph"] == "i"}
    assert marks == {
        "arrived": 0, "admitted": 2000, "first text": 50_000, "first audio": 100_000, "end: ok": 300_000,
    }  # fmt: skip


def test_every_stage_has_a_track_in_the_order_they_began_to_work():
    whole, events = drawn(chat())
    order = sorted(
        (event["tid"], event["args"]["name"]) for event in whole["traceEvents"] if event["name"] == "thread_name"
    )
    assert [name for _, name in order] == ["gateway", "thinker", "voice"]
    waiting, working = events["voice", "waiting"], events["voice", "working"]
    assert (waiting["ts"], waiting["dur"]) == (1000, 59_000)
    assert (working["ts"], working["dur"]) == (60_000, 230_000)
    assert events["voice", "first output"]["ts"] == 99_000
    assert events["thinker", "working"]["args"] == {"busy_ns": 5 * MS, "steps": 2, "completion_tokens": 12}


def test_a_request_that_failed_has_the_gateways_track_alone():
    failed = Timeline("speech", "r", arrived_ns=5 * MS, ended_ns=9 * MS, outcome="stage_lost", detail="voice: killed")
    _, events = drawn(failed)
    assert {track for track, _ in events} == {"gateway"}
    assert events["gateway", "request"]["args"]["detail"] == "voice: killed"
    assert ("gateway", "end: stage_lost") in events
    assert ("gateway", "first audio") not in events


def test_a_stage_that_never_stepped_only_waited():
    timeline = Timeline("chat", "r", 0, ended_ns=MS, outcome="ok", reports=({"idle": report(1, 0, 0, 4)},))
    _, events = drawn(timeline)
    assert events["idle", "waiting"]["dur"] == 3000
    assert ("idle", "working") not in events


def test_several_requests_of_the_pipeline_have_their_own_tracks():
    stages = {"thinker": report(1, 2, 3, 4)}
    _, events = drawn(Timeline("chat", "r", 0, ended_ns=MS, outcome="ok", reports=(stages, stages)))
    assert ("thinker #1", "working") in events
    assert ("thinker #2", "working") in events


def test_reports_without_times_are_left_out():
    odd = ({"a": {"completion_tokens": 3}, "b": {"opened_ns": "soon", "ended_ns": 4}},)
    _, events = drawn(Timeline("chat", "r", 0, ended_ns=MS, outcome="ok", reports=odd))
    assert {track for track, _ in events} == {"gateway"}
