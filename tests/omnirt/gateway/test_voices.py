"""The voices routes, and what a name stands for."""

import msgspec
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import ApiError
from omnirt.gateway.facts import PipelineFacts, VoiceFact
from omnirt.gateway.voice_store import StoredVoice, VoiceStore
from omnirt.gateway.voices import voice_params
from omnirt.testing.scripted_service import speech_facts, speech_plan

FACTS = PipelineFacts(
    voices=(VoiceFact("a", "Ann"), VoiceFact("b", "b")), default_voice="b", aliases={"alloy": "a", "bob": "Bo"}
)


def put(store, voice, upload):
    kept = store.write(voice, upload)
    store.add(kept)
    return kept


@pytest.mark.parametrize(("name", "voice"), [(None, "b"), ("a", "a"), ("Ann", "a"), ("alloy", "a"), ("b", "b")])
def test_names_stand_for_voices(name, voice):
    assert voice_params(name, FACTS, None) == {"voice": voice}


def test_uploaded_voices_bring_what_they_are_made_of(tmp_path):
    store = VoiceStore(str(tmp_path), 10)
    upload = store.begin()
    upload.write(b"RIFF")
    sample = put(store, StoredVoice("", "Cy", 0, "audio_sample", ref_text="hello"), upload)
    described = put(store, StoredVoice("", "Bo", 0, "prompt", prompt="deep"), None)
    path = str(tmp_path.resolve() / f"{sample.id}.audio")
    assert voice_params("Cy", FACTS, store) == {"voice": sample.id, "voice_sample": path, "voice_ref_text": "hello"}
    assert voice_params("bob", FACTS, store) == {"voice": described.id, "voice_prompt": "deep"}


@pytest.mark.parametrize("name", ["x", "../a", "/etc/passwd", "A", "a\0"])
def test_other_names_are_refused_with_the_choices(name):
    with pytest.raises(ApiError, match="a, b"):
        voice_params(name, FACTS, None)


def test_the_list_suits_all_its_readers(gateway):
    listing = gateway.ask("GET", "/v1/audio/voices").json()
    assert listing["object"] == "list"
    assert listing["voices"] == listing["data"]
    assert {"id": "deep", "name": "Deep", "type": "builtin"} in listing["voices"]
    assert listing["uploaded_voices"] == []
    assert gateway.ask("GET", "/v1/audio/voices?format=names").json() == {"voices": ["heart", "deep"]}


def test_aliases_are_listed_with_their_voice_and_speak(make_gateway):
    plan = msgspec.structs.replace(speech_plan(), voice={"aliases": {"alloy": "heart"}})
    gateway = make_gateway(plan=plan)
    assert gateway.ask("GET", "/v1/audio/voices").json()["voices"][0]["aliases"] == ["alloy"]
    assert gateway.speak(voice="alloy").body == gateway.speak(voice="heart").body


def test_a_model_that_cannot_learn_voices_says_so_before_reading_one(gateway):
    answer = gateway.ask("POST", "/v1/audio/voices", {"name": "x"})
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
    assert answer.headers["x-should-retry"] == "false"


def test_a_server_without_a_directory_keeps_none(make_gateway):
    facts = speech_facts()
    facts["voice"]["cloning"] = True
    answer = make_gateway(facts=facts).ask("POST", "/v1/audio/voices", {"name": "x"})
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")


@pytest.mark.parametrize("name", ["nobody", "heart", "..%2f..%2fetc", "a/b"])
def test_only_uploaded_voices_can_be_deleted(gateway, name):
    answer = gateway.ask("DELETE", f"/v1/audio/voices/{name}")
    assert (answer.status, answer.error()["code"]) == (404, "not_found")


def test_an_unusable_directory_stops_the_start(make_gateway, tmp_path):
    (tmp_path / "voices").write_text("")
    with pytest.raises(Exception, match="cannot use"):
        make_gateway(config=GatewayConfig(voices_dir=str(tmp_path / "voices")))
