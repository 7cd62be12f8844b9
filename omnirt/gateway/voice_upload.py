"""Taking in a voice: multipart (audio or description) or JSON (description), bounded while it arrives.

The audio goes to disk piece by piece, so an upload costs no memory; over the limit, or whatever else goes wrong, the
file is gone when the answer is sent.
"""

from __future__ import annotations

from typing import Any

from aiohttp import BodyPartReader, web

from omnirt.gateway.body import as_object, read_json
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError, Refusal, invalid, too_large
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.form import FORM, parts_of, piece_of, text_of
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.gateway.voice_store import StoredVoice, Upload, VoiceStore

TEXT_FIELDS = ("name", "consent", "type", "prompt", "model", "script_hint", "ref_text", "speaker_description")
TEXT_BYTES_MAX = 16 << 10
PARTS_MAX = 32
NAME_CHARS_MAX = 128
CONTAINERS = "wav, mp3, ogg, flac, aac, webm, mp4"


async def voice_from(
    request: web.Request, core: Core, store: VoiceStore, facts: PipelineFacts, samples: VoiceSamples
) -> StoredVoice:
    """The voice that `request` uploads, kept. Raises a 4xx and keeps nothing otherwise."""
    upload: Upload | None = None
    try:
        if request.content_type == FORM:
            fields, upload = await _read_parts(request, core, store)
        else:
            fields = _text_fields(await read_json(request, core.config.json_bytes_max))
        voice = await core.threaded(_checked, fields, upload, facts)
        if len(voice.prompt) > core.config.instructions_chars_max:
            raise invalid(f"prompt is over {core.config.instructions_chars_max} characters.", "prompt")
        if upload is not None and voice.type != "prompt":
            await samples.check(upload.path, "audio_sample", facts)
        async with core.keeping:  # two uploads of one name do not both find it free
            _check_room(voice, store, facts)
            kept = await core.threaded(store.write, voice, upload)
            upload = None
            store.add(kept)
        return kept
    finally:
        if upload is not None:
            upload.discard()


async def _read_parts(request: web.Request, core: Core, store: VoiceStore) -> tuple[dict[str, str], Upload | None]:
    bytes_max = core.config.upload_bytes_max
    if (request.content_length or 0) > bytes_max + PARTS_MAX * TEXT_BYTES_MAX:
        raise too_large(bytes_max)
    fields: dict[str, str] = {}
    upload: Upload | None = None
    try:
        async for part in parts_of(request, PARTS_MAX):
            if part.name == "audio_sample" and upload is None:
                upload = store.begin()
                await _copy(part, upload, core, bytes_max)
            elif part.name in TEXT_FIELDS:
                fields[part.name] = await text_of(part, TEXT_BYTES_MAX)
            else:
                while await piece_of(part):
                    pass
        return fields, upload
    except BaseException:
        if upload is not None:
            upload.discard()
        raise


async def _copy(part: BodyPartReader, upload: Upload, core: Core, bytes_max: int) -> None:
    while piece := await piece_of(part):
        if upload.size + len(piece) > bytes_max:
            raise too_large(bytes_max)
        await core.threaded(upload.write, piece)


def _text_fields(body: object) -> dict[str, str]:
    entry = as_object(body)
    if entry is None:
        raise invalid("The body must be a JSON object.", None)
    given: dict[str, Any] = {name: entry.get(name) for name in TEXT_FIELDS}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise invalid(f"{name} must be a string.", name)
    return {name: value for name, value in given.items() if value is not None}


def _checked(fields: dict[str, str], upload: Upload | None, facts: PipelineFacts) -> StoredVoice:
    name = fields.get("name", "").strip()
    if not name:
        raise invalid("name is required.", "name", "missing_required_parameter")
    if len(name) > NAME_CHARS_MAX or not name.isprintable() or "/" in name or "\\" in name:
        raise invalid(f"name must be at most {NAME_CHARS_MAX} printable characters, without slashes.", "name")
    if name in (".", ".."):  # clients and proxies take these out of the address that would delete it
        raise invalid("name must not be . or ..", "name")
    kind = fields.get("type", "audio_sample")
    if kind == "prompt":
        return _prompt_voice(name, fields, facts)
    if kind != "audio_sample":
        raise invalid("type must be one of: audio_sample, prompt.", "type")
    if not facts.cloning:
        raise invalid("This model cannot copy a voice from a sample.", "audio_sample", "unsupported_parameter")
    return _sample_voice(name, fields, upload)


def _prompt_voice(name: str, fields: dict[str, str], facts: PipelineFacts) -> StoredVoice:
    if not facts.voice_design:
        raise invalid("This model cannot make a voice from a description.", "type", "unsupported_parameter")
    prompt = fields.get("prompt", "")
    if not prompt.strip():
        raise invalid("prompt is required: a description of the voice.", "prompt", "missing_required_parameter")
    return StoredVoice("", name, 0, "prompt", prompt=prompt)


def _sample_voice(name: str, fields: dict[str, str], upload: Upload | None) -> StoredVoice:
    if not fields.get("consent", "").strip():
        raise invalid("consent is required.", "consent", "missing_required_parameter")
    if upload is None or upload.size == 0:
        raise invalid("audio_sample is required: a recording.", "audio_sample", "missing_required_parameter")
    upload.close()
    with upload.path.open("rb") as file:
        mime_type = container_of(file.read(16))
    if not mime_type:
        raise invalid(f"audio_sample must be one of: {CONTAINERS}.", "audio_sample", "unsupported_media")
    return StoredVoice(
        "",
        name,
        0,
        "audio_sample",
        mime_type=mime_type,
        size=upload.size,
        consent=fields["consent"],
        ref_text=fields.get("ref_text", ""),
        speaker_description=fields.get("speaker_description", ""),
    )


def container_of(head: bytes) -> str:
    """The media type that the first bytes of a recording show, or empty. What the client called it does not matter."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    known = {b"OggS": "audio/ogg", b"fLaC": "audio/flac", b"\x1aE\xdf\xa3": "audio/webm"}
    if head[:4] in known:
        return known[head[:4]]
    if head[4:8] == b"ftyp":
        return "audio/mp4"
    if head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xF6 == 0xF0:
        return "audio/aac"
    is_mp3 = head[:3] == b"ID3" or (head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xE0 == 0xE0)
    return "audio/mpeg" if is_mp3 else ""


def _check_room(voice: StoredVoice, store: VoiceStore, facts: PipelineFacts) -> None:
    meant = facts.aliases.get(voice.name, voice.name)
    if facts.voice(voice.name) is not None or facts.voice(meant) is not None:
        raise invalid(f"The model has a voice called {voice.name}; choose another name.", "name")
    known = store.find(voice.name) or store.find(meant)
    if known is not None:
        raise invalid(f"A voice called {known.name} exists; delete it first.", "name")
    if store.is_full():
        raise ApiError(Refusal(400, "invalid_value", "The voice store is full; delete a voice first."))
