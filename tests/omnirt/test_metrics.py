"""What is counted, with given times."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from omnirt.metrics import Metrics

S = 1_000_000_000


def figures(metrics, pipeline=None, stages=None, processes=None):
    text = metrics.expose(pipeline or {}, stages or {}, processes or {}).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(s.name, *s.labels.values()): s.value for s in samples}


def test_real_time_factor_is_the_whole_time_over_the_length_of_the_audio():
    metrics = Metrics()
    metrics.speech_done(arrived_ns=10 * S, first_ns=10 * S + S // 2, ended_ns=11 * S, audio_s=2.0)
    found = figures(metrics)
    assert found["omnirt_speech_rtf_sum",] == pytest.approx(0.5)
    assert found["omnirt_speech_ttfp_seconds_sum",] == pytest.approx(0.5)
    assert found["omnirt_speech_e2e_seconds_sum",] == pytest.approx(1.0)
    assert found["omnirt_speech_audio_seconds_total",] == 2.0


def test_an_answer_without_audio_has_no_factor():
    metrics = Metrics()
    metrics.speech_done(0, 0, S, 0.0)
    found = figures(metrics)
    assert found["omnirt_speech_rtf_count",] == found["omnirt_speech_ttfp_seconds_count",] == 0
    assert found["omnirt_speech_requests_total", "ok"] == 1


def test_other_endings_are_counted_by_name():
    metrics = Metrics()
    metrics.speech_ended("queue_full")
    metrics.speech_ended("client_gone")
    found = figures(metrics)
    assert found["omnirt_speech_requests_total", "queue_full"] == 1
    assert found["omnirt_speech_e2e_seconds_count",] == 0


def test_figures_of_processes_stages_and_links_are_those_of_the_moment():
    metrics = Metrics()
    own = {"lag ms": 1.5, "tts.steps": 3, "tts.rows": 2, "link.tts.0.bytes": 64}
    first = figures(metrics, {"up": 1}, {"tts": {"restarts_total": 2}}, {"a.0": own})
    assert first["omnirt_up",] == 1
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
    one.speech_ended("timeout")
    assert ("omnirt_speech_requests_total", "timeout") not in figures(other)
