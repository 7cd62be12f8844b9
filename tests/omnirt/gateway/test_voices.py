"""The voices routes."""

import msgspec
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.scripted_service import speech_plan


def test_the_list_suits_all_its_readers(gateway):
    listing = gateway.ask("GET", "/v1/audio/voices").json()
    assert listing["object"] == "list"
    assert listing["voices"] == listing["data"]
    assert {"id": "deep", "name": "Deep", "type": "builtin"} in listing["voices"]
    assert listing["uploaded_voices"] == []
    assert (listing["languages"], listing["task_types"]) == ([], ["CustomVoice"])
    assert gateway.ask("GET", "/v1/audio/voices?format=names").json() == {"voices": ["heart", "deep"]}


def test_aliases_are_listed_with_their_voice_and_speak(make_gateway):
    plan = msgspec.structs.replace(speech_plan(), voice={"aliases": {"alloy": "heart"}})
    gateway = make_gateway(plan=plan)
    assert gateway.ask("GET", "/v1/audio/voices").json()["voices"][0]["aliases"] == ["alloy"]
    assert gateway.speak(voice="alloy").body == gateway.speak(voice="heart").body


def test_the_list_says_what_can_be_asked_for(make_gateway):
    facts = clone_facts()
    facts["voice"]["languages"] = ["Auto", "English", "en"]
    gateway = make_gateway(plan=clone_plan(), facts=facts)
    listing = gateway.ask("GET", "/v1/audio/voices").json()
    assert (listing["languages"], listing["task_types"]) == (["Auto", "English", "en"], ["Base"])
    extension = gateway.ask("GET", "/v1/models/clone").json()["omnirt"]
    assert (extension["languages"], extension["task_types"]) == (["Auto", "English", "en"], ["Base"])


def test_an_alias_for_a_voice_that_is_not_there_is_not_listed(make_gateway):
    gateway = make_gateway(plan=msgspec.structs.replace(speech_plan(), voice={"aliases": {"alloy": "vivian"}}))
    assert not [voice for voice in gateway.ask("GET", "/v1/audio/voices").json()["voices"] if "aliases" in voice]
    assert gateway.speak(voice="alloy").body == gateway.speak(voice="heart").body


def test_a_model_that_cannot_learn_voices_says_so_before_reading_one(gateway):
    answer = gateway.ask("POST", "/v1/audio/voices", {"name": "x"})
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
    assert answer.headers["x-should-retry"] == "false"


def test_a_server_without_a_directory_keeps_none(make_gateway):
    answer = make_gateway(plan=clone_plan(), facts=clone_facts()).ask("POST", "/v1/audio/voices", {"name": "x"})
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
    assert "--voices DIR" in answer.error()["message"]


@pytest.mark.parametrize("name", ["nobody", "heart", "..%2f..%2fetc", "a/b"])
def test_only_uploaded_voices_can_be_deleted(gateway, name):
    answer = gateway.ask("DELETE", f"/v1/audio/voices/{name}")
    assert (answer.status, answer.error()["code"]) == (404, "not_found")


def test_an_unusable_directory_stops_the_start(make_gateway, tmp_path):
    (tmp_path / "voices").write_text("")
    with pytest.raises(Exception, match="cannot use"):
        make_gateway(config=GatewayConfig(voices_dir=str(tmp_path / "voices")))


def test_a_model_that_only_copies_lists_no_voice_of_its_own(make_gateway):
    gateway = make_gateway(plan=clone_plan(), facts=clone_facts())
    assert gateway.ask("GET", "/v1/audio/voices").json()["voices"] == []


def test_a_recording_that_no_stage_hears_cannot_be_copied(make_gateway, tmp_path):
    facts = clone_facts()
    facts["voice"] |= facts.pop("ear")
    gateway = make_gateway(plan=speech_plan(), facts=facts, config=GatewayConfig(voices_dir=str(tmp_path)))
    assert gateway.ask("POST", "/v1/audio/voices", {"name": "x"}).status == 501
    assert gateway.speak(ref_audio="data:,x").error()["param"] == "ref_audio"
