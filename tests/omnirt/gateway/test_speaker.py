"""Who speaks, as tables."""

import msgspec
import pytest

from omnirt.gateway.errors import ApiError
from omnirt.gateway.facts import PipelineFacts, VoiceFact
from omnirt.gateway.speaker import Speaker, speaker_of, spoken_voice, voice_of
from omnirt.gateway.speech_reference import Reference
from omnirt.gateway.speech_request import SpeechRequest
from omnirt.gateway.voice_store import StoredVoice, VoiceStore

NAMES = frozenset({"ref_text", "x_vector_only_mode", "task_type"})
OWN = (VoiceFact("a", "Ann"), VoiceFact("b", "b"))
CUSTOM = PipelineFacts(voices=OWN, default_voice="b", aliases={"alloy": "a", "bob": "Bo"})
DESIGN = PipelineFacts(
    voices=(VoiceFact("default", "default"),), default_voice="default", task_types=("VoiceDesign",), voice_design=True
)
CLONE = PipelineFacts(task_types=("Base",), cloning=True, honoured=NAMES)
ALL = PipelineFacts(voices=OWN, default_voice="b", task_types=("CustomVoice", "VoiceDesign", "Base"), honoured=NAMES)
SENT = Reference("data:,x")


@pytest.fixture
def store(tmp_path):
    store = VoiceStore(str(tmp_path), 10)
    for voice in (
        StoredVoice("", "Cy", 0, "audio_sample", ref_text=" hello "),
        StoredVoice("", "Di", 0, "audio_sample"),
        StoredVoice("", "Bo", 0, "prompt", prompt="a deep voice"),
    ):
        upload = store.begin() if voice.type == "audio_sample" else None
        store.add(store.write(voice, upload))
    return store


def refusal(asked, facts, store=None):
    with pytest.raises(ApiError) as caught:
        speaker_of(asked, facts, store)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


@pytest.mark.parametrize(
    ("name", "voice"), [(None, "b"), ("a", "a"), ("Ann", "a"), ("ANN", "a"), ("_a", "a"), ("alloy", "a"), ("b", "b")]
)
def test_names_stand_for_voices(name, voice):
    assert speaker_of(SpeechRequest(voice=name), CUSTOM, None) == Speaker({"voice": voice})


@pytest.mark.parametrize("name", ["x", "../a", "../../etc/passwd", "/etc/passwd", "a\0"])
def test_other_names_are_refused_with_the_choices(name, store):
    found = refusal(SpeechRequest(voice=name), CUSTOM, store)
    assert found.param == "voice"
    assert found.message == "Unknown voice. Choose one of: a, b."
    listed = refusal(SpeechRequest(voice=name), ALL, store).message
    assert all(other in listed for other in ("a, b", "Bo", "Cy", "Di"))


def test_a_described_voice_is_its_description():
    asked = SpeechRequest(params={"instructions": "a deep voice"})
    assert speaker_of(asked, DESIGN, None) == Speaker({"instructions": "a deep voice"})
    assert speaker_of(SpeechRequest(voice="default", params=asked.params), DESIGN, None).params == asked.params


@pytest.mark.parametrize("instructions", [{}, {"instructions": " "}])
def test_a_voice_that_is_not_described_is_refused(instructions):
    assert refusal(SpeechRequest(params=instructions), DESIGN).param == "instructions"
    assert refusal(SpeechRequest(params=instructions, voice="alloy"), DESIGN).param == "voice"


def test_an_uploaded_description_counts_and_the_request_may_add_to_it(store):
    assert speaker_of(SpeechRequest(voice="Bo"), DESIGN, store).params == {"instructions": "a deep voice"}
    more = SpeechRequest(voice="Bo", params={"instructions": "whispering"})
    assert speaker_of(more, DESIGN, store).params == {"instructions": "a deep voice\nwhispering"}


@pytest.mark.parametrize(
    ("asked", "params"),
    [
        (SpeechRequest(reference=SENT, ref_text="hi"), {"ref_text": "hi"}),
        (SpeechRequest(reference=SENT, ref_text="hi", voice="whatever"), {"ref_text": "hi"}),
        (SpeechRequest(reference=SENT, ref_text="hi", task_type="Base"), {"ref_text": "hi"}),
        (SpeechRequest(reference=SENT, ref_text="hi", x_vector_only=True), {"x_vector_only_mode": True}),
        (SpeechRequest(reference=SENT, x_vector_only=True), {"x_vector_only_mode": True}),
    ],
)
def test_a_recording_in_the_request_is_the_voice(asked, params):
    expected = Speaker({"reference": True, "task_type": "Base"} | params, SENT)
    assert speaker_of(asked, CLONE, None) == expected


@pytest.mark.parametrize(
    ("asked", "params"),
    [
        (SpeechRequest(voice="Cy"), {"ref_text": "hello"}),
        (SpeechRequest(voice="Cy", ref_text="other"), {"ref_text": "other"}),
        (SpeechRequest(voice="Cy", x_vector_only=True), {"x_vector_only_mode": True}),
        (SpeechRequest(voice="Di"), {"x_vector_only_mode": True}),
        (SpeechRequest(voice="Di", ref_text="said"), {"ref_text": "said"}),
    ],
)
def test_an_uploaded_sample_is_copied(store, asked, params):
    found = speaker_of(asked, CLONE, store)
    assert found.params == {"reference": True, "task_type": "Base"} | params
    assert found.recording == store.find(asked.voice)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (SpeechRequest(), "ref_audio"),
        (SpeechRequest(task_type="Base"), "ref_audio"),
        (SpeechRequest(voice="alloy"), "voice"),
        (SpeechRequest(reference=SENT), "ref_text"),
        (SpeechRequest(reference=SENT, x_vector_only=False), "ref_text"),
        (SpeechRequest(voice="Di", x_vector_only=False), "ref_text"),
        (SpeechRequest(voice="Bo"), "voice"),
    ],
)
def test_what_a_copy_lacks_is_named(store, asked, param):
    assert refusal(asked, CLONE, store).param == param


def test_what_could_be_copied_is_listed(store):
    message = refusal(SpeechRequest(), CLONE, store).message
    assert "Cy" in message
    assert "Di" in message
    assert "Bo" not in message
    assert "x_vector_only_mode" in refusal(SpeechRequest(reference=SENT), CLONE, store).message


def test_a_model_that_needs_no_text_of_a_recording_is_not_asked_for_one():
    facts = PipelineFacts(task_types=("Base",), cloning=True)
    assert speaker_of(SpeechRequest(reference=SENT), facts, None).params == {"reference": True}


@pytest.mark.parametrize(
    ("asked", "task"),
    [
        (SpeechRequest(), "CustomVoice"),
        (SpeechRequest(voice="a"), "CustomVoice"),
        (SpeechRequest(params={"instructions": "softly"}), "CustomVoice"),
        (SpeechRequest(params={"instructions": "deep"}, task_type="VoiceDesign"), "VoiceDesign"),
        (SpeechRequest(voice="Bo"), "VoiceDesign"),
        (SpeechRequest(voice="Cy"), "Base"),
        (SpeechRequest(reference=SENT, ref_text="hi"), "Base"),
    ],
)
def test_what_is_meant_follows_from_what_is_given(store, asked, task):
    assert speaker_of(asked, ALL, store).params["task_type"] == task


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (SpeechRequest(reference=SENT, task_type="CustomVoice"), "ref_audio"),
        (SpeechRequest(voice="Cy", task_type="VoiceDesign"), "voice"),
        (SpeechRequest(voice="Bo", task_type="CustomVoice"), "voice"),
        (SpeechRequest(voice="a", task_type="Base"), "ref_audio"),
    ],
)
def test_what_contradicts_the_task_is_refused(store, asked, param):
    assert refusal(asked, ALL, store).param == param


def test_an_uploaded_voice_is_refused_where_the_model_has_no_use_for_it(store):
    assert refusal(SpeechRequest(voice="Cy"), CUSTOM, store).param == "voice"
    assert refusal(SpeechRequest(voice="bob"), CUSTOM, store).param == "voice"
    assert voice_of("bob", CUSTOM, store) == store.find("Bo")


@pytest.mark.parametrize("name", ["Cy", "cy", "CY", "c_y"])
def test_an_uploaded_voice_is_found_however_it_is_spelt(store, name):
    assert voice_of(name, CLONE, store) == store.find("Cy")


def test_a_name_that_is_spelt_so_goes_before_one_that_sounds_so(store):
    store.add(store.write(StoredVoice("", "ANN", 0, "prompt", prompt="like Ann"), None))
    assert voice_of("ANN", CUSTOM, store) == store.find("ANN")
    assert voice_of("Ann", CUSTOM, store) == voice_of("ann", CUSTOM, store) == "a"


def test_an_alias_for_a_voice_that_is_not_there_stands_for_the_default_voice(store):
    lost = {"aliases": {"alloy": "vivian", "Cy": "vivian"}}
    facts = [msgspec.structs.replace(each, **lost) for each in (CUSTOM, DESIGN, CLONE)]
    assert [voice_of("alloy", each, store) for each in facts] == ["b", "default", ""]
    assert voice_of("Cy", facts[2], store) == store.find("Cy"), "nor does it hide a voice that was uploaded"
    described = SpeechRequest(voice="alloy", params={"instructions": "deep"})
    assert speaker_of(described, facts[1], None).params == {"instructions": "deep"}
    assert refusal(SpeechRequest(voice="alloy"), facts[2], store).param == "ref_audio"


def test_a_chat_speaks_with_every_voice_but_a_copied_one(store):
    assert spoken_voice("alloy", CUSTOM, store) == {"voice": "a"}
    with pytest.raises(ApiError):
        spoken_voice("Cy", ALL, store)
