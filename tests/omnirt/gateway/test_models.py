"""The list of models."""

import pytest

from omnirt.testing.scripted_chat import chatting


def test_every_name_is_an_entry(gateway):
    listing = gateway.ask("GET", "/v1/models").json()
    assert listing["object"] == "list"
    assert [entry["id"] for entry in listing["data"]] == ["speech", "tts-1", "org/voice"]
    for entry in listing["data"]:
        assert (entry["object"], entry["owned_by"], entry["root"]) == ("model", "omnirt", "speech")
        assert entry["created"] > 1_600_000_000
        assert entry["omnirt"]["modalities"] == {"input": ["text"], "output": ["audio"]}
        assert entry["omnirt"]["voices"] == ["heart", "deep"]
        assert entry["omnirt"]["endpoints"] == ["/v1/audio/speech", "/v1/audio/speech/stream"]


@pytest.mark.parametrize("path", ["org/voice", "org%2Fvoice", "speech"])
def test_one_is_found_by_its_name_with_slashes_or_without(gateway, path):
    assert gateway.ask("GET", f"/v1/models/{path}").json()["id"] == path.replace("%2F", "/")


def test_an_unknown_one_is_not(gateway):
    answer = gateway.ask("GET", "/v1/models/gpt")
    assert (answer.status, answer.error()["code"], answer.error()["param"]) == (404, "model_not_found", "model")


def test_speaking_models_are_listed_apart(gateway):
    listing = gateway.ask("GET", "/v1/audio/models").json()
    assert listing["models"][0] == {"id": "speech", "name": "speech"}


def test_a_model_tells_every_surface_that_it_serves(make_gateway):
    gateway = make_gateway(**chatting())
    extension = gateway.ask("GET", "/v1/models/voice").json()["omnirt"]
    assert extension["endpoints"] == [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/audio/speech",
        "/v1/audio/speech/stream",
        "/v1/audio/transcriptions",
    ]
    assert gateway.ask("GET", "/v1/audio/models").json()["models"][0] == {"id": "voice", "name": "voice"}


def test_a_doubled_slash_after_the_base_is_forgiven(gateway):
    assert gateway.ask("GET", "/v1//models").status == 200
    assert gateway.ask("GET", "/v1//audio/voices").status == 200
