"""What the stages say, put together."""

import msgspec

from omnirt.gateway.facts import VoiceFact, gather
from omnirt.testing.scripted_service import speech_plan


def test_facts_of_all_stages_come_together():
    facts = {
        "text": {"languages": ["English"], "parameters": ["seed"]},
        "voice": {
            "sample_rate": 16_000,
            "voices": ["a", {"id": "b", "name": "Bea", "language": "en"}],
            "default_voice": "b",
            "parameters": ["speed"],
            "cloning": True,
        },
    }
    found = gather(speech_plan(), facts)
    assert found.voices == (VoiceFact("a", "a"), VoiceFact("b", "Bea", {"language": "en"}))
    assert (found.default_voice, found.sample_rate, found.languages) == ("b", 16_000, ("English",))
    assert found.honoured == {"seed", "speed"}
    assert found.cloning
    assert not found.voice_design


def test_the_rate_is_the_speaking_stages():
    assert (
        gather(speech_plan(), {"text": {"sample_rate": 8_000}, "voice": {"sample_rate": 16_000}}).sample_rate == 16_000
    )
    assert gather(speech_plan(), {"text": {"sample_rate": 8_000}, "voice": {}}).sample_rate == 8_000


def test_a_pipeline_that_says_nothing_has_one_voice():
    found = gather(speech_plan(), {})
    assert (found.voices, found.default_voice, found.sample_rate) == (
        (VoiceFact("default", "default"),),
        "default",
        24_000,
    )


def test_the_pipeline_file_may_choose_and_rename_voices():
    plan = msgspec.structs.replace(speech_plan(), voice={"default": "b", "aliases": {"alloy": "a"}})
    found = gather(plan, {"voice": {"voices": ["a", "b"]}})
    assert (found.default_voice, found.aliases) == ("b", {"alloy": "a"})
