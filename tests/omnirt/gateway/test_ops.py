"""Health, version, metrics, cancel, and absent routes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

import omnirt
from omnirt.gateway.app import ABSENT_GET, ABSENT_POST
from omnirt.testing.live_server import live_server
from omnirt.testing.scripted_service import Fail, Hold, speech_plan


def figures(gateway):
    answer = gateway.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [s for family in text_string_to_metric_families(answer.body.decode()) for s in family.samples]
    return {(s.name, *s.labels.values()): s.value for s in samples}


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("ready", 200, "healthy"),
        ("degraded", 200, "degraded"),
        ("loading", 503, "loading"),
        ("unavailable", 503, "unhealthy"),
        ("draining", 503, "draining"),
    ],
)
@pytest.mark.parametrize("path", ["/health", "/ping", "/ready"])
def test_health_follows_the_pipeline(gateway, state, code, status, path):
    gateway.service.state_name = state
    answer = gateway.ask("GET", path)
    assert (answer.status, answer.json()["status"]) == (code, status)
    assert {stage["name"] for stage in answer.json()["stages"]} == {"text", "voice"}


def test_health_names_the_dead_stage(gateway):
    gateway.service.state_name = "unavailable"
    gateway.service.stage_states = {"voice": "restarting"}
    report = gateway.ask("GET", "/health").json()
    assert report["reason"] == "stage voice is restarting (0 of 1 ready)"
    assert [stage["state"] for stage in report["stages"]] == ["ready", "restarting"]


def test_the_process_answers_whatever_the_stages_do(gateway):
    gateway.service.state_name = "unavailable"
    answer = gateway.ask("GET", "/healthz")
    assert (answer.status, answer.body) == (200, b"OK\n")
    assert gateway.ask("GET", "/version").json() == {"version": omnirt.__version__}


def test_metrics_count_answers_and_speech(make_gateway):
    gateway = make_gateway()
    gateway.speak("x" * 20)
    gateway.speak(voice="nobody")
    found = figures(gateway)
    assert found["omnirt_http_requests_total", "speech", "200"] == 1
    assert found["omnirt_http_requests_total", "speech", "400"] == 1
    assert found["omnirt_requests_total", "ok", "speech"] == 1
    assert found["omnirt_request_audio_seconds_total", "speech"] == pytest.approx(1.0)
    for name in ("ttfp_seconds", "e2e_seconds", "rtf"):
        assert found[f"omnirt_request_{name}_count", "speech"] == 1
        assert found[f"omnirt_request_{name}_sum", "speech"] > 0
    assert found["omnirt_stage_steps_total", "main.0", "voice"] > 0
    assert found["omnirt_stage_ready", "voice"] == 1
    assert found["omnirt_info", "speech", omnirt.__version__] == 1


def test_running_and_waiting_are_told_apart(make_gateway):
    gateway = make_gateway(plan=speech_plan(requests_max=1, queue_max=64), script=lambda _: [Hold()])
    with ThreadPoolExecutor(10) as pool:
        sent = [pool.submit(gateway.speak) for _ in range(10)]
        gateway.until(lambda: len(gateway.service.submitted) == 10)
        found = figures(gateway)
        assert found["omnirt_requests_running",] == 1
        assert found["omnirt_requests_waiting",] == 9
        assert found["omnirt_request_slots",] == 1
        gateway.call(gateway.service.release)
        assert {future.result().status for future in sent} == {200}
    found = figures(gateway)
    assert found["omnirt_requests_running",] == found["omnirt_requests_waiting",] == 0


def test_failures_and_leavers_are_counted_apart(make_gateway):
    gateway = make_gateway(plan=speech_plan(requests_max=1, queue_max=0), script=lambda _: [Hold()])
    connection = gateway.connect()
    connection.sendall(b'POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{"input": "hi"}')
    gateway.until(lambda: gateway.service.state().running == 1)
    assert gateway.speak().status == 429
    connection.close()
    gateway.until(lambda: gateway.service.state().running == 0)
    found = figures(gateway)
    assert found["omnirt_requests_total", "queue_full", "speech"] == 1
    assert found["omnirt_requests_total", "client_gone", "speech"] == 1
    assert found["omnirt_http_requests_total", "speech", "499"] == 1


def test_a_hung_node_does_not_hang_the_metrics(make_gateway, monkeypatch):
    import asyncio

    gateway = make_gateway()

    async def never():
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("omnirt.gateway.ops.STATS_DEADLINE_S", 0.05)
    gateway.service.stats = never
    assert figures(gateway)["omnirt_up",] == 1


def test_cancel_by_name(make_gateway):
    gateway = make_gateway(script=lambda _: [Hold()])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(gateway.speak, headers={"X-Request-Id": "it"})
        gateway.until(lambda: gateway.service.state().running == 1)
        answer = gateway.ask("POST", "/v1/omnirt/requests/it/cancel")
        assert (answer.status, answer.json()["status"]) == (200, "cancelled")
        ended = sent.result()
        assert (ended.status, ended.error()["code"]) == (409, "cancelled")
    assert gateway.ask("POST", "/v1/omnirt/requests/it/cancel").json()["status"] == "finished"
    unknown = gateway.ask("POST", "/v1/omnirt/requests/other/cancel")
    assert (unknown.status, unknown.error()["code"]) == (404, "not_found")


def test_a_request_that_ended_has_a_trace(make_gateway):
    gateway = make_gateway()
    gateway.speak("x" * 20, headers={"X-Request-Id": "mine/1"})
    answer = gateway.ask("GET", "/v1/omnirt/requests/mine%2F1/trace")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["otherData"] | {"arrived_unix_s": 0} == {
        "request": "mine/1", "surface": "speech", "outcome": "ok", "arrived_unix_s": 0,
    }  # fmt: skip
    names = [event["name"] for event in answer.json()["traceEvents"]]
    assert {"arrived", "first audio", "end: ok"} <= set(names)
    unknown = gateway.ask("GET", "/v1/omnirt/requests/other/trace")
    assert (unknown.status, unknown.error()["code"]) == (404, "not_found")


def test_failed_and_cancelled_requests_have_one_too(make_gateway):
    gateway = make_gateway(
        script=lambda submit: [Fail("stage_failed")] if submit.inputs[0][1].text == "bad" else [Hold()]
    )
    gateway.speak("bad", headers={"X-Request-Id": "bad"})
    trace = gateway.ask("GET", "/v1/omnirt/requests/bad/trace").json()
    (span,) = [event for event in trace["traceEvents"] if event["name"] == "request"]
    assert (span["args"]["outcome"], span["args"]["detail"]) == ("stage_failed", "voice: scripted failure")
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(gateway.speak, headers={"X-Request-Id": "it"})
        gateway.until(lambda: gateway.service.state().running == 1)
        gateway.ask("POST", "/v1/omnirt/requests/it/cancel")
        sent.result()
    assert gateway.ask("GET", "/v1/omnirt/requests/it/trace").json()["otherData"]["outcome"] == "cancelled"


@pytest.mark.parametrize("path", ABSENT_POST)
def test_known_routes_with_nothing_behind_them_say_so(gateway, path):
    answer = gateway.ask("POST", f"/v1/{path}", {"model": "speech"})
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
    assert answer.headers["x-should-retry"] == "false"
    unknown = gateway.ask("POST", f"/v1/{path}", {"model": "gpt"})
    assert (unknown.status, unknown.error()["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("path", ABSENT_GET)
def test_sockets_with_nothing_behind_them_say_so(gateway, path):
    assert gateway.ask("GET", f"/v1/{path}").status == 501


@pytest.mark.parametrize("path", ["responses", "embeddings", "files", "moderations", "audio/voice_consents"])
def test_other_routes_of_the_api_are_not_found_in_its_own_words(gateway, path):
    answer = gateway.ask("POST", f"/v1/{path}", {})
    assert (answer.status, answer.error()["code"]) == (404, "not_found")


def test_overload_is_refused_with_one_status_and_a_time(make_gateway):
    gateway = make_gateway(plan=speech_plan(requests_max=2, queue_max=3), script=lambda _: [Hold()])
    with ThreadPoolExecutor(5) as pool:
        sent = [pool.submit(gateway.speak) for _ in range(5)]
        gateway.until(lambda: len(gateway.service.submitted) == 5)
        for _ in range(20):
            refused = gateway.speak()
            assert (refused.status, refused.error()["code"]) == (429, "queue_full")
            assert refused.error()["type"] == "rate_limit_error"
            assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("1", "200")
        gateway.call(gateway.service.release)
        assert {future.result().status for future in sent} == {200}
    assert gateway.speak().status == 200


def test_a_real_head_tells_running_from_waiting_too():
    sets = ["limits.requests_max=1", "limits.queue_max=64", "stage.tone.options.step_ms=20"]
    with live_server("tone", sets) as gateway, ThreadPoolExecutor(10) as pool:
        sent = [pool.submit(gateway.speak, "440 Hz for 1 s") for _ in range(10)]
        gateway.until(lambda: gateway.service.state().waiting == 9)
        found = figures(gateway)
        assert found["omnirt_requests_running",] == 1
        assert found["omnirt_requests_waiting",] == 9
        assert found["omnirt_stage_rows", "tone.0", "tone"] == 1
        assert {future.result().status for future in sent} == {200}
        gateway.until(lambda: gateway.service.state().running == 0)
        found = figures(gateway)
    gauges = ("requests_running", "requests_waiting", "stage_rows", "stage_waiting", "stage_parked", "link_out_bytes")
    left = {key: value for key, value in found.items() if key[0].removeprefix("omnirt_") in gauges and value}
    assert not left
