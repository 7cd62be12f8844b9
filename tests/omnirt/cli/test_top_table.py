"""Figures in, lines out."""

import math

import pytest

from omnirt.cli.top_scrape import Scrape, parse
from omnirt.cli.top_table import LEGEND, count, number, seconds, table

S = 1_000_000_000


def stage(name, state="ready", ready=1, restarts=0):
    return {"name": name, "state": state, "ready": ready, "replicas": 1, "restarts": restarts, "detail": ""}


def counters(kind, **values):
    return [f'omnirt_stage_{name}{{process="voice.0",stage="{kind}"}} {value}' for name, value in values.items()]


def scrape(at_s=10, running=1, requests=10, steps=100, busy_s=1.0, health=None, extra=()):
    lines = [
        'omnirt_info{pipeline="speech",version="1"} 1',
        f"omnirt_requests_running {running}",
        "omnirt_requests_waiting 2",
        "omnirt_request_slots 16",
        f'omnirt_requests_total{{outcome="ok",surface="speech"}} {requests}',
        'omnirt_requests_total{outcome="timeout",surface="speech"} 3',
        f'omnirt_request_e2e_seconds_count{{surface="speech"}} {requests}',
        f'omnirt_request_ttfp_seconds_bucket{{le="0.1",surface="speech"}} {requests / 2}',
        f'omnirt_request_ttfp_seconds_bucket{{le="0.2",surface="speech"}} {requests}',
        f'omnirt_request_ttfp_seconds_bucket{{le="+Inf",surface="speech"}} {requests}',
        f'omnirt_request_audio_seconds_total{{surface="speech"}} {requests * 2}',
        *counters("voice", rows=1, waiting=4, steps_total=steps, busy_seconds_total=busy_s, chunks_out_total=steps),
        *counters("voice", stale_total=12345),
        'omnirt_link_out_bytes{peer="head",process="voice.0"} 512',
        'omnirt_link_out_bytes_max{peer="head",process="voice.0"} 1024',
        'omnirt_link_out_slots{peer="head",process="voice.0"} 1',
        'omnirt_link_out_slots_max{peer="head",process="voice.0"} 64',
        *extra,
    ]
    health = health or {"status": "healthy", "stages": [stage("voice"), stage("quiet", restarts=2)]}
    return Scrape(at_s * S, health, parse("\n".join(lines) + "\n"))


def test_rates_are_of_what_grew_and_times_of_what_was_seen():
    before, now = scrape(10, requests=10), scrape(12, requests=14, steps=190, busy_s=2.5)
    lines = table(now, before, None)
    assert lines[0] == "speech: healthy   running 1 of 16   waiting 2"
    assert lines[1].startswith("2.00 req/s   0 tokens/s   4.00 s of audio/s")
    (speech,) = [line for line in lines if line.startswith("speech  ")]
    assert speech.split() == ["speech", "2.00", "3", "0", "-", "-", "0.10s", "0.20s", "-", "-"]
    (voice,) = [line for line in lines if line.startswith("voice ")]
    assert voice.split() == ["voice", "ready", "1/1", "0", "1", "4", "45.0", "75%", "45.0", "12.3k"]
    (link,) = [line for line in lines if line.startswith("voice.0 > head")]
    assert link.split() == ["voice.0", ">", "head", "50%", "512", "1024", "2%", "1", "64"]


def test_a_client_that_left_is_no_failure():
    gone = ['omnirt_requests_total{outcome="client_gone",surface="speech"} 7']
    (speech,) = [line for line in table(scrape(extra=gone), None, None) if line.startswith("speech  ")]
    assert speech.split()[2:4] == ["3", "7"]


def test_the_short_names_are_explained_where_there_is_room():
    lines = table(scrape(), None, None)
    assert lines[-1] == LEGEND
    assert LEGEND in table(scrape(), None, None, 80, len(lines))
    assert LEGEND not in table(scrape(), None, None, 80, len(lines) - 1)


def test_the_first_look_has_no_rates():
    lines = table(scrape(), None, None)
    assert lines[1].startswith("- req/s")
    assert not any("nan" in line for line in lines)


def test_a_process_that_did_not_answer_is_not_taken_for_an_idle_one():
    (quiet,) = [line for line in table(scrape(), scrape(8), None) if line.startswith("quiet")]
    assert quiet.split() == ["quiet", "ready", "1/1", "2", "?", "?", "0", "0%", "0", "0"]


def test_trouble_is_told_in_the_servers_words():
    health = {"status": "unhealthy", "reason": "stage voice is restarting (0 of 1 ready)", "stages": [stage("voice")]}
    assert "! stage voice is restarting (0 of 1 ready)" in table(scrape(health=health), None, None)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    stages = [stage("a_stage_with_a_name_that_is_far_too_long", "restarting", 10, 123456)]
    health = {"status": "degraded", "reason": "x" * 300, "stages": stages}
    links = [f'omnirt_link_out_bytes{{peer="{"p" * 60}",process="{"q" * 60}"}} 5']
    now = scrape(12, requests=10**9, steps=10**10, health=health, extra=links)
    assert max(map(len, table(now, scrape(10), None, width))) <= width


def test_everything_of_a_usual_server_fits_into_80_columns():
    assert not any(line.endswith("~") for line in table(scrape(12, requests=4000, steps=90_000), scrape(10), None, 80))


def test_a_low_terminal_shows_what_fits_and_says_how_many_links_are_left_out():
    links = [f'omnirt_link_out_bytes{{peer="p{number}",process="q"}} {number}' for number in range(40)]
    lines = table(scrape(extra=links), None, None, 80, 20)
    assert len(lines) == 20
    assert lines[-1] == f"... {41 - sum(' > ' in line for line in lines)} more"


def test_the_fullest_link_comes_first():
    links = ['omnirt_link_out_bytes{peer="b",process="a"} 90', 'omnirt_link_out_bytes_max{peer="b",process="a"} 100']
    names = [line.split("  ")[0] for line in table(scrape(extra=links), None, None) if " > " in line]
    assert names == ["a > b", "voice.0 > head"]


def test_a_server_without_requests_or_stages_has_a_table_too():
    empty = Scrape(S, {}, {})
    assert "no request yet" in table(empty, None, None)


def test_figures_are_short():
    assert [seconds(value) for value in (0.00123, 0.0123, 0.5, 9.99, 123, math.inf)] == [
        "1.2ms", "12ms", "0.50s", "9.99s", "123s", "long",
    ]  # fmt: skip
    assert [number(value) for value in (0, 0.123, 12.34, 123.4, 12345)] == ["0", "0.12", "12.3", "123", "12.3k"]
    assert [count(value) for value in (0, 9999, 12_345, 1_234_567, 5e9)] == ["0", "9999", "12.3k", "1.2M", "5.0G"]
