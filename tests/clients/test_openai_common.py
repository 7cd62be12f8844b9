"""What every surface shares, through the OpenAI SDK and plain HTTP: checks 1 to 12 of the conformance list."""

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.scripted_service import Hold, chunks_of, speech_plan, tone

ENVELOPE = {"message", "type", "param", "code"}
JSON = {"Content-Type": "application/json"}


def test_check_1_models_are_listed_each_alias_on_its_own(server, client):
    listing = server.ask("GET", "/v1/models")
    assert listing.status == 200
    assert listing.json()["object"] == "list"
    for entry in listing.json()["data"]:
        assert entry.keys() >= {"id", "object", "created", "owned_by"}
    assert [model.id for model in client.models.list()] == [entry["id"] for entry in listing.json()["data"]]


def test_check_1_aliases(scripted, connect):
    names = [model.id for model in connect(scripted()).models.list()]
    assert names == ["speech", "tts-1", "org/voice"]


def test_check_2_a_model_is_retrieved_by_its_name(client, model):
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no/such")
    assert caught.value.code == "model_not_found"


def test_check_2_a_name_with_a_slash(scripted, connect):
    assert connect(scripted()).models.retrieve("org/voice").id == "org/voice"


def test_check_3_an_unknown_model_is_an_envelope_with_four_keys(server, client):
    body = {"model": "no-such", "messages": [{"role": "user", "content": "hi"}]}
    answer = server.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 404
    assert answer.error().keys() >= ENVELOPE
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**body)
    assert caught.value.code == "model_not_found"


def test_check_4_broken_json_is_an_envelope_too(server):
    for path in ("/v1/chat/completions", "/v1/audio/speech"):
        answer = server.ask("POST", path, b"{", JSON)
        assert answer.status == 400
        assert answer.error()["type"] == "invalid_request_error"
        assert answer.headers["content-type"].startswith("application/json")


def test_check_5_wrong_methods_and_unknown_paths(server):
    wrong = server.ask("GET", "/v1/audio/speech")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert wrong.error().keys() >= ENVELOPE
    for path in ("/v1/nothing", "/nothing", "/v1/audio/speech/x"):
        unknown = server.ask("POST", path, {})
        assert unknown.status == 404
        assert unknown.error().keys() >= ENVELOPE


def test_check_6_keys(scripted, connect, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-right\n")
    keys.chmod(0o600)
    server = scripted(config=GatewayConfig(keys_file=str(keys)))
    assert server.ask("GET", "/v1/models").status == 401
    with pytest.raises(openai.AuthenticationError) as caught:
        connect(server, api_key="sk-wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    assert connect(server, api_key="sk-right").models.list().data
    assert server.ask("GET", "/health").status == 200
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "A" * 22,
    }
    assert server.ask("GET", "/v1/realtime", headers=upgrade).status == 401


def test_check_7_request_ids(server, client, voice, model):
    assert server.ask("GET", "/health").headers["x-request-id"]
    listing = client.models.with_raw_response.list(extra_headers={"X-Request-Id": "mine-1"})
    assert listing.headers["x-request-id"] == "mine-1"
    assert client.models.retrieve(model)._request_id.startswith("req_")
    with client.audio.speech.with_streaming_response.create(
        model=model, voice=voice, input="hi", extra_headers={"X-Request-Id": "mine-2"}
    ) as response:
        assert response.headers["x-request-id"] == "mine-2"
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model=model, voice=voice, input=" ", extra_headers={"X-Request-Id": "mine-3"})
    assert caught.value.request_id == "mine-3"


def test_check_8_preflight_and_errors_for_pages(server):
    asked = "authorization,x-stainless-lang"
    page = {"Origin": "https://page.example"}
    preflight = page | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    answer = server.ask("OPTIONS", "/v1/chat/completions", headers=preflight)
    assert answer.status in (200, 204)
    assert set(asked.split(",")) <= set(answer.headers["access-control-allow-headers"].split(","))
    for path, body in (("/v1/audio/speech", {}), ("/v1/nothing", {})):
        assert "access-control-allow-origin" in server.ask("POST", path, body, page).headers


def test_check_9_unknown_fields_and_nulls(server, client, model, voice):
    nulls = {"instructions": None, "speed": None, "stream_format": None, "seed": None, "ref_audio": None}
    extras = {"user": "u", "store": True, "metadata": {"a": 1}, "temperature": 0.1, "frobnicate": [1]}
    body = {"model": model, "voice": voice, "input": "hello"} | nulls | extras
    assert server.ask("POST", "/v1/audio/speech", body).status == 200
    assert client.audio.speech.create(
        model=model, voice=voice, input="hi", extra_body={"user": "u", "seed": None}
    ).content


def test_check_10_operations(server):
    assert server.ask("GET", "/health").status == 200
    assert server.ask("GET", "/healthz").body == b"OK\n"
    assert isinstance(server.ask("GET", "/version").json()["version"], str)
    metrics = server.ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert list(text_string_to_metric_families(metrics.body.decode()))


def test_check_11_a_full_queue_refuses_and_the_sdk_gets_through_later(scripted, connect):
    server = scripted(plan=speech_plan(requests_max=1, queue_max=1), script=lambda _: [Hold(), *chunks_of(tone(0.1))])
    speech = {"model": "speech", "voice": "heart", "input": "hi"}
    with ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(server.speak) for _ in range(2)]
        server.until(lambda: len(server.service.submitted) == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            connect(server).audio.speech.create(**speech)
        assert caught.value.code == "queue_full"
        assert float(caught.value.response.headers["retry-after"]) > 0
        patient = pool.submit(connect(server, max_retries=2).audio.speech.create, **speech)
        server.call(server.service.release)
        assert patient.result().content
        assert {future.result().status for future in slow} == {200}


@pytest.mark.parametrize(("state", "code"), [("loading", "model_loading"), ("draining", "shutting_down")])
def test_check_12_a_server_that_cannot_serve_says_for_how_long(scripted, connect, state, code):
    server = scripted()
    server.service.state_name = state
    with pytest.raises(openai.InternalServerError) as caught:
        connect(server).audio.speech.create(model="speech", voice="heart", input="hi")
    assert (caught.value.status_code, caught.value.code) == (503, code)
    assert float(caught.value.response.headers["retry-after"]) > 0
    assert caught.value.body.keys() >= ENVELOPE


def test_work_that_has_begun_is_not_repeated_by_the_sdk(scripted, connect):
    from omnirt.testing.scripted_service import Fail

    server = scripted(script=lambda _: [Fail("stage_failed")])
    with pytest.raises(openai.InternalServerError):
        connect(server, max_retries=2).audio.speech.create(model="speech", voice="heart", input="hi")
    assert len(server.service.submitted) == 1
