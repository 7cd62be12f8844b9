"""Who speaks: from a checked request, what the pipeline can do, and the uploaded voices. Pure.

    CustomVoice   a voice that the model has: `voice`
    VoiceDesign   one that is described: `instructions`, an uploaded description, or both
    Base          one that is copied from a recording: `ref_audio`, or an uploaded sample

Which of them is meant follows from what was given; `task_type` only says it aloud. A recording in the request is the
voice: `voice`, which some clients must send, is not looked at then. A copy follows what is said in its recording
(`ref_text`) unless it is told to take the sound of the voice alone (`x_vector_only_mode`); an uploaded sample without a
text can only be taken that way, so that goes without saying. Names are looked up in tables, never on a disk.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from omnirt.gateway.errors import ApiError, invalid
from omnirt.gateway.facts import CLONE, CUSTOM, DESIGN, PipelineFacts
from omnirt.gateway.speech_reference import CANNOT, Reference
from omnirt.gateway.speech_request import SpeechRequest
from omnirt.gateway.voice_store import StoredVoice, VoiceStore

LISTED_MAX = 40
MISSING = "missing_required_parameter"
NO_TEXT = "say in ref_text what is said in the recording, or set x_vector_only_mode to true"


class Speaker(Struct, frozen=True):
    """`params`: what makes the stages speak so. `recording`: what they are to copy, if that is how."""

    params: dict[str, Any]
    recording: Reference | StoredVoice | None = None


def speaker_of(asked: SpeechRequest, facts: PipelineFacts, store: VoiceStore | None) -> Speaker:
    """Raises a 400 that names the field."""
    if asked.reference is not None:
        if asked.task_type not in (None, CLONE):
            raise invalid(f"ref_audio is for task_type {CLONE}, not {asked.task_type}.", asked.reference.param)
        return _copied(asked, asked.reference, facts)
    voice = voice_of(asked.voice, facts, store)
    if isinstance(voice, StoredVoice) and voice.type != "prompt":
        return _copied(asked, _wanted(voice, CLONE, asked, facts), facts)
    task = _task(asked, voice, facts)
    if task == CLONE:
        raise _unsaid(store)
    if task == DESIGN:
        return _designed(asked, voice if isinstance(voice, StoredVoice) else None, facts)
    if isinstance(voice, StoredVoice):
        raise invalid(f"{voice.name} is a described voice; it is for task_type {DESIGN}.", "voice")
    return Speaker({"voice": voice} | _task_param(CUSTOM, facts))


def voice_of(name: str | None, facts: PipelineFacts, store: VoiceStore | None) -> str | StoredVoice:
    """The id of a voice that the model has, or an uploaded voice. Empty where none was named and the model has no voice
    of its own. Raises a 400 that lists the choices.

    An alias whose voice these weights lack stands for the default one: a pipeline serves several checkpoints."""
    tried = [facts.aliases.get(name, name), name] if name is not None else []
    if name is None or name in facts.aliases:
        tried.append(facts.default_voice)
    for wanted in tried:
        found = _named(wanted, facts, store)
        if found is not None:
            return found
    choices = _choices(facts, store)
    text = f"Choose one of: {', '.join(choices)}." if choices else "There is none yet."
    raise invalid(f"Unknown voice. {text}", "voice")


def _named(wanted: str, facts: PipelineFacts, store: VoiceStore | None) -> str | StoredVoice | None:
    """As `voice_of`, of a name that is no alias. What is spelt so goes before what sounds so."""
    if not wanted:
        return ""
    known = facts.voice(wanted)
    stored = store.find(wanted) if store is not None else None
    is_stored = stored is not None and wanted in (stored.id, stored.name)
    if known is not None and (wanted in (known.id, known.name) or not is_stored):
        return known.id
    return stored


def _task(asked: SpeechRequest, voice: str | StoredVoice, facts: PipelineFacts) -> str:
    """What is meant, where no recording was given."""
    if asked.task_type is not None:
        return asked.task_type
    if isinstance(voice, StoredVoice):
        _wanted(voice, DESIGN, asked, facts)
        return DESIGN
    if asked.voice is None and "instructions" in asked.params and CUSTOM not in facts.task_types:
        return DESIGN if DESIGN in facts.task_types else CLONE
    return facts.task_types[0]


def _wanted(voice: StoredVoice, task: str, asked: SpeechRequest, facts: PipelineFacts) -> StoredVoice:
    """`voice`, which is for `task`. Raises where that was not asked for, or cannot be done."""
    if asked.task_type not in (None, task):
        raise invalid(f"{voice.name} is an uploaded voice for task_type {task}, not {asked.task_type}.", "voice")
    if task not in facts.task_types:
        why = CANNOT if task == CLONE else "This model cannot make a voice from a description."
        raise invalid(f"{voice.name} cannot be used. {why}", "voice")
    return voice


def _copied(asked: SpeechRequest, recording: Reference | StoredVoice, facts: PipelineFacts) -> Speaker:
    kept = recording.ref_text.strip() if isinstance(recording, StoredVoice) else ""
    said = asked.ref_text or kept
    sound_only = asked.x_vector_only
    if sound_only is None:
        sound_only = isinstance(recording, StoredVoice) and not said and "x_vector_only_mode" in facts.honoured
    params: dict[str, Any] = {"reference": True} | _task_param(CLONE, facts)
    if sound_only:
        params["x_vector_only_mode"] = True
    elif said:
        params["ref_text"] = said
    elif "ref_text" in facts.honoured:
        raise invalid(f"ref_text is required: {NO_TEXT}.", "ref_text", MISSING)
    return Speaker(params, recording)


def _designed(asked: SpeechRequest, voice: StoredVoice | None, facts: PipelineFacts) -> Speaker:
    """A voice that was uploaded as a description, what this request adds to it, or both."""
    own = str(asked.params.get("instructions", "")).strip()
    described = "\n".join(text for text in (voice.prompt.strip() if voice else "", own) if text)
    if not described:
        raise invalid("instructions is required: a description of the voice.", "instructions", MISSING)
    return Speaker({"instructions": described} | _task_param(DESIGN, facts))


def _task_param(task: str, facts: PipelineFacts) -> dict[str, str]:
    return {"task_type": task} if "task_type" in facts.honoured else {}


def _choices(facts: PipelineFacts, store: VoiceStore | None) -> list[str]:
    """What may be named: of the uploaded voices those that the model has a use for."""
    usable = {kind for kind, task in (("prompt", DESIGN), ("audio_sample", CLONE)) if task in facts.task_types}
    names = [voice.id for voice in facts.voices]
    names += [voice.name for voice in (store.all() if store else []) if voice.type in usable]
    return names[:LISTED_MAX] + (["..."] if len(names) > LISTED_MAX else [])


def _unsaid(store: VoiceStore | None) -> ApiError:
    names = [voice.name for voice in store.all() if voice.type != "prompt"] if store else []
    known = f" ({', '.join(names[:LISTED_MAX])})" if names else ""
    text = f"ref_audio is required: a recording of the voice to speak with; or name an uploaded one as voice{known}."
    return invalid(text, "ref_audio", MISSING)


def spoken_voice(name: str | None, facts: PipelineFacts, store: VoiceStore | None) -> dict[str, Any]:
    """Parameters for speech that is not read from a request's text alone, as in a chat, where no recording of a voice
    can come along. Raises a 400."""
    speaker = speaker_of(SpeechRequest(voice=name), facts, store)
    if speaker.recording is not None:
        raise invalid("A voice that is copied from a recording cannot be used here.", "voice")
    return speaker.params
