"""What the stages say, put together."""

import msgspec
import pytest

from omnirt.gateway.facts import PipelineFacts, VoiceFact, gather, with_reference
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


@pytest.mark.parametrize(
    ("said", "tasks"),
    [
        ({}, ("CustomVoice",)),
        ({"voices": ["a"], "voice_design": True, "cloning": True}, ("CustomVoice", "VoiceDesign", "Base")),
        ({"voice_design": True}, ("VoiceDesign",)),
        ({"cloning": True}, ("Base",)),
        ({"cloning": True, "task_types": ["base"]}, ("Base",)),
        ({"task_types": ["voice_design", "Base"]}, ("VoiceDesign", "Base")),
        ({"task_types": ["sings"]}, ("CustomVoice",)),
    ],
)
def test_what_can_be_asked_for_is_said_or_follows(said, tasks):
    assert gather(speech_plan(), {"voice": said}).task_types == tasks


def test_a_pipeline_that_only_copies_has_no_voice_of_its_own():
    found = gather(speech_plan(), {"voice": {"cloning": True}})
    assert (found.voices, found.default_voice) == ((), "")
    assert gather(speech_plan(), {"voice": {"voice_design": True}}).default_voice == "default"


def test_recordings_are_wanted_as_the_stage_that_hears_says_or_at_the_rate_of_the_speech():
    found = gather(speech_plan(), {"voice": {"sample_rate": 48_000}})
    assert (found.reference_rate, found.reference_s_max) == (48_000, float("inf"))
    heard = {"reference_rate": 16_000, "reference_seconds_max": 30, "reference_seconds_min": 0.5}
    said = {"text": heard, "voice": {"sample_rate": 48_000}}
    found = gather(speech_plan(), said)
    assert (found.reference_rate, found.reference_s_max, found.reference_s_min) == (16_000, 30.0, 0.5)


def test_a_voice_is_found_however_it_is_spelt_and_first_as_it_is():
    found = PipelineFacts(voices=(VoiceFact("uncle_fu", "Uncle Fu"), VoiceFact("a", "a"), VoiceFact("A", "A")))
    assert [found.voice(name).id for name in ("uncle_fu", "Uncle_Fu", "UNCLE FU", "a", "A")] == [
        "uncle_fu", "uncle_fu", "uncle_fu", "a", "A",
    ]  # fmt: skip
    assert found.voice("aunt") is None


def test_what_can_be_copied_follows_from_who_hears_recordings():
    spoken = PipelineFacts(
        honoured=frozenset({"a"}), languages=("x",), cloning=True, task_types=("CustomVoice", "Base")
    )
    assert with_reference(spoken, None).task_types == ("CustomVoice",)
    assert not with_reference(spoken, PipelineFacts()).cloning
    copied = PipelineFacts(
        honoured=frozenset({"a", "b"}), cloning=True, task_types=("Base",), languages=("y",), reference_rate=16_000
    )
    found = with_reference(spoken, copied)
    assert (found.cloning, found.honoured, found.task_types) == (True, {"a", "b"}, ("Base",))
    assert (found.reference_rate, found.languages) == (16_000, ("x",))
