"""What is counted, with given times."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from omnirt.metrics import Metrics

S = 1_000_000_000


def figures(metrics, pipeline=None, stages=None, processes=None, about=None):
    text = metrics.expose(pipeline or {}, stages or {}, processes or {}, about).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(s.name, *s.labels.values()): s.value for s in samples}


def test_what_a_track_measured_is_exposed_by_surface():
    times = iter((10 * S, 10 * S + S // 2, 11 * S))
    metrics = Metrics(now_ns=lambda: next(times))
    track = metrics.track("speech")
    track.audio(48_000, 24_000)
    track.done()
    found = figures(metrics)
    assert found["omnirt_request_rtf_sum", "speech"] == pytest.approx(0.5)
    assert found["omnirt_request_ttfp_seconds_sum", "speech"] == pytest.approx(0.5)
    assert found["omnirt_request_e2e_seconds_sum", "speech"] == pytest.approx(1.0)
    assert found["omnirt_request_audio_seconds_total", "speech"] == 2.0
    assert found["omnirt_requests_total", "ok", "speech"] == 1


def test_a_histogram_is_cumulative_and_has_its_edges_in_seconds():
    metrics = Metrics(now_ns=lambda: S + 10_000_000)
    metrics.track("chat", arrived_ns=S).text()
    found = figures(metrics)
    buckets = {key[2]: value for key, value in found.items() if key[0] == "omnirt_request_ttft_seconds_bucket"}
    assert (buckets["0.005"], buckets["0.01"], buckets["+Inf"]) == (0, 1, 1)
    assert list(buckets.values()) == sorted(buckets.values())


def test_an_answer_without_audio_has_no_factor():
    metrics = Metrics()
    metrics.track("speech").done()
    found = figures(metrics)
    assert found["omnirt_request_rtf_count", "speech"] == found["omnirt_request_ttfp_seconds_count", "speech"] == 0
    assert found["omnirt_requests_total", "ok", "speech"] == 1


def test_other_endings_are_counted_by_name():
    metrics = Metrics()
    metrics.track("chat").ended("queue_full")
    metrics.track("speech").ended("client_gone")
    found = figures(metrics)
    assert found["omnirt_requests_total", "queue_full", "chat"] == 1
    assert found["omnirt_requests_total", "client_gone", "speech"] == 1
    assert found["omnirt_request_e2e_seconds_count", "chat"] == 0


def test_a_surface_nobody_knows_is_a_mistake_of_ours():
    with pytest.raises(AssertionError):
        Metrics().track("speach")


def test_answers_are_counted_by_route_and_status():
    metrics = Metrics()
    for status in (200, 200, 404):
        metrics.answered("speech", status)
    found = figures(metrics)
    assert found["omnirt_http_requests_total", "speech", "200"] == 2
    assert found["omnirt_http_requests_total", "speech", "404"] == 1


def test_figures_of_processes_stages_and_links_are_those_of_the_moment():
    metrics = Metrics()
    own = {"lag ms": 1.5, "tts.steps": 3, "tts.rows": 2, "link.tts.0.bytes": 64}
    first = figures(metrics, {"up": 1}, {"tts": {"restarts_total": 2}}, {"a.0": own})
    assert first["omnirt_up",] == 1
    assert ("omnirt_info", "p") in figures(Metrics(), about={"pipeline": "p"})
    assert first["omnirt_stage_restarts_total", "tts"] == 2
    assert first["omnirt_process_lag_ms", "a.0"] == 1.5
    assert first["omnirt_stage_steps_total", "a.0", "tts"] == 3
    assert first["omnirt_stage_rows", "a.0", "tts"] == 2
    assert first["omnirt_link_bytes", "tts.0", "a.0"] == 64
    assert not any("process" in name for name, *_ in figures(metrics))


def test_one_family_holds_all_owners():
    text = Metrics().expose({}, {}, {"a": {"x_total": 1}, "b": {"x_total": 2}}).decode()
    assert text.count("# TYPE omnirt_process_x_total counter") == 1


def test_servers_do_not_share_counters():
    one, other = Metrics(), Metrics()
    one.track("speech").ended("timeout")
    assert ("omnirt_requests_total", "timeout", "speech") not in figures(other)
