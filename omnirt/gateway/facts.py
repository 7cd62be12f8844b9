"""What the stages say of themselves, put together for clients.

A stage may say (see `Stage.facts`):

    sample_rate          Hz of its audio
    voices               list of names, or of {"id": ..., "name"?: ..., more}
    default_voice        one of them
    languages            list of names
    parameters           names of request parameters it acts on (`speed`, `temperature`, ...)
    task_types           what it can be asked for: CustomVoice, VoiceDesign, Base (or custom_voice, ...)
    voice_design         true when it can make a voice from a description (`params["instructions"]`)
    cloning              true when it can speak like a recording: one that comes with the request, as its `audio` input
    reference_rate       Hz it wants such a recording in; its own sample_rate otherwise
    reference_seconds_max  how long such a recording may be
    reference_seconds_min  how long it must be

The pipeline file's [voice] table may add `default` and `aliases` (other name -> voice). An alias for a voice that
the weights do not have stands for the default one: clients of some APIs must name a voice, and mean none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from omnirt.gateway.body import as_object
from omnirt.wire.plan import Plan

CUSTOM, DESIGN, CLONE = TASK_TYPES = ("CustomVoice", "VoiceDesign", "Base")


class VoiceFact(Struct, frozen=True):
    id: str
    name: str
    more: dict[str, Any] = {}


class PipelineFacts(Struct, frozen=True):
    """`task_types`: never empty. `voices`: of a pipeline that only copies or designs voices there may be none."""

    sample_rate: int = 24_000
    voices: tuple[VoiceFact, ...] = ()
    default_voice: str = ""
    aliases: dict[str, str] = {}
    languages: tuple[str, ...] = ()
    honoured: frozenset[str] = frozenset()
    task_types: tuple[str, ...] = (CUSTOM,)
    cloning: bool = False
    voice_design: bool = False
    reference_rate: int = 24_000
    reference_s_max: float = float("inf")
    reference_s_min: float = 0.0

    def voice(self, name: str) -> VoiceFact | None:
        """By id or name; by how they sound where none is spelt so."""
        exact = (voice for voice in self.voices if name in (voice.id, voice.name))
        alike = (voice for voice in self.voices if plainly(name) in (plainly(voice.id), plainly(voice.name)))
        return next(exact, None) or next(alike, None)


def gather(plan: Plan, facts: Mapping[str, Mapping[str, Any]]) -> PipelineFacts:
    """One view over all stages. A pipeline that names no voice has one, called `default`, unless it only copies."""
    stages = [facts[stage.name] for stage in plan.stages if stage.name in facts]
    cloning = any(bool(stage.get("cloning")) for stage in stages)
    design = any(bool(stage.get("voice_design")) for stage in stages)
    voices = tuple(_voice(entry) for stage in stages for entry in stage.get("voices", ()))
    tasks = _task_types(stages, bool(voices), design, cloning)
    if not voices and set(tasks) != {CLONE}:
        voices = (VoiceFact("default", "default"),)
    first = voices[0].id if voices else ""
    said = next((str(stage["default_voice"]) for stage in stages if stage.get("default_voice")), first)
    rate = _rate(plan, facts, stages)
    return PipelineFacts(
        sample_rate=rate,
        voices=voices,
        default_voice=str(plan.voice.get("default") or said),
        aliases={str(name): str(voice) for name, voice in plan.voice.get("aliases", {}).items()},
        languages=tuple(str(name) for stage in stages for name in stage.get("languages", ())),
        honoured=frozenset(str(name) for stage in stages for name in stage.get("parameters", ())),
        task_types=tasks,
        cloning=cloning,
        voice_design=design,
        reference_rate=next((int(stage["reference_rate"]) for stage in stages if "reference_rate" in stage), rate),
        reference_s_max=min(
            (float(stage["reference_seconds_max"]) for stage in stages if "reference_seconds_max" in stage),
            default=float("inf"),
        ),
        reference_s_min=max((float(stage.get("reference_seconds_min", 0.0)) for stage in stages), default=0.0),
    )


def with_reference(spoken: PipelineFacts, copied: PipelineFacts | None) -> PipelineFacts:
    """`spoken`: of the stages between text and audio. `copied`: of those that take part when a recording comes with
    the text; None where nothing takes one. Other stages that hear (such as a recogniser) say nothing of speech."""
    if copied is None or not copied.cloning:
        return structs.replace(
            spoken, cloning=False, task_types=tuple(task for task in spoken.task_types if task != CLONE) or (CUSTOM,)
        )
    return structs.replace(
        spoken,
        voices=copied.voices,
        default_voice=copied.default_voice,
        honoured=copied.honoured,
        task_types=copied.task_types,
        cloning=True,
        reference_rate=copied.reference_rate,
        reference_s_max=copied.reference_s_max,
        reference_s_min=copied.reference_s_min,
    )


def _task_types(stages: list[Mapping[str, Any]], named: bool, design: bool, cloning: bool) -> tuple[str, ...]:
    said = {plainly(task) for stage in stages for task in stage.get("task_types", ())}
    if not said:
        said = {plainly(task) for task, able in ((CUSTOM, named), (DESIGN, design), (CLONE, cloning)) if able}
    return tuple(task for task in TASK_TYPES if plainly(task) in said) or (CUSTOM,)


def plainly(name: object) -> str:
    """Checkpoints write `custom_voice`, clients `CustomVoice`; people write `Uncle Fu` for `uncle_fu`."""
    return str(name).replace("_", "").replace(" ", "").lower()


def _rate(plan: Plan, facts: Mapping[str, Mapping[str, Any]], stages: list[Mapping[str, Any]]) -> int:
    """Of the stage that gives the audio to the client; of whichever says one where that does not."""
    final = next((stage.name for stage in plan.stages if stage.final == "audio"), "")
    said = [facts.get(final, {}), *stages]
    return next((int(stage["sample_rate"]) for stage in said if "sample_rate" in stage), 24_000)


def _voice(entry: object) -> VoiceFact:
    fields = dict(as_object(entry) or {})
    if fields:
        known = str(fields.pop("id"))
        return VoiceFact(known, str(fields.pop("name", known)), fields)
    return VoiceFact(str(entry), str(entry))
