"""An answer in one piece: read to its end, then one JSON body. What would be over the limit fails instead."""

from __future__ import annotations

from msgspec import Struct, structs

from omnirt.errors import StageFailed, error_from
from omnirt.gateway.chat_audio import AnswerAudio
from omnirt.gateway.chat_chunks import AnswerId, chat_logprobs
from omnirt.gateway.chat_usage import Counts, Reports, counts_of
from omnirt.gateway.media import wav_header
from omnirt.session.service import Done, Live, Output
from omnirt.track import Track
from omnirt.wire.payload import Pcm, Text, TokenLogprob


class Whole(Struct, frozen=True):
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    audio: bytes = b""
    counts: Counts = Counts()
    reports: Reports = {}


async def read_whole(live: Live, track: Track, bytes_max: int, audio: AnswerAudio | None = None) -> Whole:
    """Raises what ended the request early."""
    texts: list[Text] = []
    sound = bytearray()
    chars = 0
    while isinstance(event := await live.next(), Output):
        payload = event.payload
        if isinstance(payload, Text):
            track.text(len(payload.logprobs) or 1)
            texts.append(payload)
            chars += len(payload.text)
        elif isinstance(payload, Pcm) and audio is not None:
            track.audio(payload.samples.size, payload.rate)
            sound += await audio.feed(payload)
        else:
            raise StageFailed(f"nobody asked the pipeline for {type(payload).__name__}")
        if len(sound) + chars > bytes_max:
            raise StageFailed(f"the answer is over {bytes_max} bytes; ask for a stream")
    if not isinstance(event, Done):
        raise error_from(event.failure)
    text = Text.joined(texts) if texts else Text("")
    whole = Whole(text.text, text.logprobs, b"", counts_of(event.reports), event.reports)
    if audio is None:
        return whole
    sound += await audio.flush()
    header = wav_header(audio.rate, len(sound)) if audio.format == "wav" else b""
    return structs.replace(whole, audio=header + sound)


def chat_completion(answer: AnswerId, choices: list[dict[str, object]], usage: dict[str, object]) -> dict[str, object]:
    return {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created_s,
        "model": answer.model,
        "choices": choices,
        "usage": usage,
        "system_fingerprint": None,
    }


def chat_choice(index: int, whole: Whole, audio: AnswerAudio | None, *, logprobs: bool) -> dict[str, object]:
    """A spoken answer has its text as content too: clients differ in where they look."""
    message: dict[str, object] = {"role": "assistant", "content": whole.text, "refusal": None}
    choice: dict[str, object] = {"index": index, "message": message}
    if audio is not None:
        message["audio"] = {
            "id": audio.id,
            "data": whole.audio,  # the encoder makes it base64
            "expires_at": audio.keep(whole.text),
            "transcript": whole.text,
        }
        choice["audio_metadata"] = {
            "format": audio.format,
            "sample_rate_hz": audio.rate,
            "frame_count": audio.frames,
            "channels": 1,
        }
    choice["finish_reason"] = whole.counts.finish_reason
    choice["logprobs"] = chat_logprobs(whole.logprobs) if logprobs else None
    return choice
