"""What the stages say of themselves, put together for clients.

A stage may say (see `Stage.facts`):

    sample_rate    Hz of its audio
    voices         list of names, or of {"id": ..., "name"?: ..., more}
    default_voice  one of them
    languages      list of names
    parameters     names of request parameters it acts on (`speed`, `ref_audio`, ...)
    cloning        true when it can speak with an uploaded sample (`params["voice_sample"]`: a path)
    voice_design   true when it can make a voice from a description (`params["voice_prompt"]`)

The pipeline file's [voice] table may add `default` and `aliases` (other name -> voice).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from omnirt.gateway.body import as_object
from omnirt.wire.plan import Plan


class VoiceFact(Struct, frozen=True):
    id: str
    name: str
    more: dict[str, Any] = {}


class PipelineFacts(Struct, frozen=True):
    sample_rate: int = 24_000
    voices: tuple[VoiceFact, ...] = ()
    default_voice: str = ""
    aliases: dict[str, str] = {}
    languages: tuple[str, ...] = ()
    honoured: frozenset[str] = frozenset()
    cloning: bool = False
    voice_design: bool = False


def gather(plan: Plan, facts: Mapping[str, Mapping[str, Any]]) -> PipelineFacts:
    """One view over all stages. A pipeline that names no voice has one, called `default`."""
    stages = [facts[stage.name] for stage in plan.stages if stage.name in facts]
    voices = tuple(_voice(entry) for stage in stages for entry in stage.get("voices", ()))
    voices = voices or (VoiceFact("default", "default"),)
    said = next((str(stage["default_voice"]) for stage in stages if stage.get("default_voice")), voices[0].id)
    final = next((stage.name for stage in plan.stages if stage.final == "audio"), "")
    rates = [*(facts[name]["sample_rate"] for name in (final,) if "sample_rate" in facts.get(name, {}))]
    rates += [stage["sample_rate"] for stage in stages if "sample_rate" in stage]
    return PipelineFacts(
        sample_rate=int(rates[0]) if rates else 24_000,
        voices=voices,
        default_voice=str(plan.voice.get("default") or said),
        aliases={str(name): str(voice) for name, voice in plan.voice.get("aliases", {}).items()},
        languages=tuple(str(name) for stage in stages for name in stage.get("languages", ())),
        honoured=frozenset(str(name) for stage in stages for name in stage.get("parameters", ())),
        cloning=any(bool(stage.get("cloning")) for stage in stages),
        voice_design=any(bool(stage.get("voice_design")) for stage in stages),
    )


def _voice(entry: object) -> VoiceFact:
    fields = dict(as_object(entry) or {})
    if fields:
        known = str(fields.pop("id"))
        return VoiceFact(known, str(fields.pop("name", known)), fields)
    return VoiceFact(str(entry), str(entry))
