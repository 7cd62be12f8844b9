"""What the talker reads before its first frame, and the lines of text it is given while it speaks.

Every row is the sum of a text id's row and, from the control rows on, a term of the codec track:

    text    instruct   role    pad .. pad  bos   first text   | streaming: one line of text a frame, then eos, then pad
    codec      -        -      think language speaker pad  bos | frames ...

    text    instruct   role    pad .. pad  bos   all of the text, eos   pad   | not streaming: pad at every frame
    codec      -        -      think language speaker pad ...      pad   bos  | frames ...

A clone that continues a recording reads its text and its frames, too: added to each other position by position, or
(not streaming) all text before all frames. `describe` is pure; `embed` needs a handful of operations of the device,
however many prompts there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.languages import language_id, speaker_of
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.errors import InvalidRequest

if TYPE_CHECKING:
    from torch import Tensor

    from omnirt.actors.models.qwen3_tts.weights import TextWeights
    from omnirt.kernels.frame_layout import FrameWeights


class Speech(msgspec.Struct, frozen=True):
    """What is asked for. Ids are those of `tokens.PromptTokens`."""

    text: Sequence[int]
    language: str | None = None
    speaker: str | None = None
    """By name; None for the default one."""
    instruct: Sequence[int] = ()
    voice: SpeakerVoice | None = None
    """Of a recording."""
    ref_text: Sequence[int] = ()
    """What is said in the recording."""
    non_streaming: bool | None = None
    """None: as the checkpoint was made for."""
    is_open: bool = False
    """More text is to come. Only in the streaming form."""


class Prompt(msgspec.Struct, frozen=True):
    text: list[int]
    """An id for each row."""
    codec: list[int]
    """An id for each of the last rows; those before have text only."""
    voice_row: int
    """The one of `codec` that is the speaker's embedding; -1 for none."""
    embedding: np.ndarray
    frames: np.ndarray
    """[F, Q], in place of the last F of `codec`."""
    lines: list[int]
    """Ids of text for the frames to come, the last one for all later ones, too; no end while the text is open."""

    def __len__(self) -> int:
        return len(self.text)


def describe(config: Qwen3TtsConfig, role: Sequence[int], speech: Speech) -> Prompt:
    """`role`: the ids that say who speaks. Raises InvalidRequest."""
    voice = _voice(config, speech)
    frames = voice.codes if voice is not None else np.zeros((0, config.books), np.int32)
    if len(frames) and not speech.ref_text:
        raise InvalidRequest("continuing a recording takes its text", param="ref_text")
    missing = tokens_needed(voice, speech.ref_text) if speech.is_open else 1
    if len(speech.text) < missing:
        raise InvalidRequest("there is no text to speak", param="input")
    instruct = _instruct(config, speech)
    control, voice_row = _control(config, speech, voice)
    pad, bos = config.text.pad, config.text.bos
    head = [*instruct, *role, *[pad] * (len(control) - 1), bos]
    if len(frames):
        text, codec, lines = _continued(config, speech, len(frames))
    elif _streams(config, speech):
        text, codec = [speech.text[0]], [config.codec.bos]
        lines = line_ids(config, speech.text[1:], is_last=not speech.is_open)
    else:
        text = [*speech.text, config.text.eos, pad]
        codec = [*[config.codec.pad] * (len(text) - 1), config.codec.bos]
        lines = [pad]
    embedding = voice.embedding if voice is not None else np.zeros(0, np.float32)
    return Prompt(head + text, control + codec, voice_row, embedding, frames, lines)


def line_ids(config: Qwen3TtsConfig, ids: Sequence[int], *, is_last: bool) -> list[int]:
    """Of text that came later: what goes behind the lines there are."""
    return [*ids, config.text.eos, config.text.pad] if is_last else list(ids)


def tokens_needed(voice: SpeakerVoice | None, ref_text: Sequence[int]) -> int:
    """Tokens of an open text before its prompt can be made."""
    frames = 0 if voice is None else len(voice.codes)
    return max(1, frames + 1 - len(ref_text)) if frames else 1


def embed(prompts: Sequence[Prompt], frame: FrameWeights, text: TextWeights) -> list[tuple[Tensor, Tensor]]:
    """Of each prompt its rows [T, W] and its lines of text [n, W], on the device of the weights. As many operations
    for many prompts as for one."""
    import torch

    ids, codec, at, brought, sizes = [], [], [], [], []
    for prompt in prompts:
        end = len(ids) + len(prompt)
        at += range(end - len(prompt.codec), end)
        if prompt.voice_row >= 0:
            brought.append((len(codec), prompt))
        codec += prompt.codec
        ids += prompt.text + prompt.lines
        sizes += (len(prompt), len(prompt.lines))
    device, known, count = frame.embed.device, len(ids), len(codec)
    numbers = torch.from_numpy(np.array([*ids, *codec, *at], np.int64)).to(device, non_blocking=True)
    rows = text.rows(numbers[:known])
    terms = torch.nn.functional.embedding(numbers[known : known + count], frame.embed)
    if brought:
        _bring(terms, brought, frame)
    places = numbers[known + count :]
    rows.index_copy_(0, places, terms.add_(rows[places]))
    parts = rows.split(sizes)
    return list(zip(parts[::2], parts[1::2], strict=True))


def _bring(terms: Tensor, brought: list[tuple[int, Prompt]], frame: FrameWeights) -> None:
    """What recordings bring, each into the terms of its prompt, which begin at `start`: their speakers, and their
    frames where they are continued."""
    import torch

    def put(values: Tensor, places: list[int]) -> None:
        terms.index_copy_(0, torch.tensor(places).to(terms.device, non_blocking=True), values)

    speakers = torch.from_numpy(np.stack([prompt.embedding for _, prompt in brought]))
    put(speakers.to(terms, non_blocking=True), [start + prompt.voice_row for start, prompt in brought])
    places: list[int] = []
    for start, prompt in brought:
        end = start + len(prompt.codec)
        places += range(end - len(prompt.frames), end)
    if places:
        codes = torch.from_numpy(np.concatenate([prompt.frames for _, prompt in brought]).astype(np.int64))
        put(frame_rows(codes.to(terms.device, non_blocking=True), frame), places)


def embed_lines(ids: Sequence[int], text: TextWeights) -> Tensor:
    """[n] ids of `line_ids` to [n, W]."""
    import torch

    return text.rows(torch.tensor(list(ids), dtype=torch.int64).to(text.embed.device, non_blocking=True))


def frame_rows(codes: Tensor, frame: FrameWeights) -> Tensor:
    """[F, Q] codes to [F, W]: the sum of their embeddings."""
    import torch
    from torch.nn import functional

    books, size, width = frame.embeds.shape
    starts = torch.arange(books, device=codes.device) * size
    others = functional.embedding_bag(codes[:, 1:] + starts, frame.embeds.view(-1, width), mode="sum")
    return functional.embedding(codes[:, 0], frame.embed) + others


def _streams(config: Qwen3TtsConfig, speech: Speech) -> bool:
    if speech.is_open:
        assert not speech.non_streaming, "text that is not all there can only be streamed"
        return True
    return config.task == "base" if speech.non_streaming is None else not speech.non_streaming


def _continued(config: Qwen3TtsConfig, speech: Speech, frames: int) -> tuple[list[int], list[int], list[int]]:
    """Rows and lines behind the control rows, for a recording of so many frames."""
    pad, codec = config.text.pad, [config.codec.bos, *[config.codec.pad] * frames]
    spoken = [*speech.ref_text, *speech.text, *([] if speech.is_open else [config.text.eos])]
    if not _streams(config, speech):
        return spoken + [pad] * len(codec), [config.codec.pad] * len(spoken) + codec, [pad]
    rows, rest = spoken[: len(codec)], spoken[len(codec) :]
    return rows + [pad] * (len(codec) - len(rows)), codec, rest if speech.is_open else [*rest, pad]


def _control(config: Qwen3TtsConfig, speech: Speech, voice: SpeakerVoice | None) -> tuple[list[int], int]:
    """Ids of the control rows, and which of them is the embedding."""
    codec = config.codec
    speaker = speaker_of(config, speech.speaker) if config.task == "custom_voice" else None
    language = language_id(config, speech.language, speaker)
    chosen = [codec.nothink, codec.think_bos] if language is None else [codec.think, codec.think_bos, language]
    rows = [*chosen, codec.think_eos]
    voice_row = len(rows) if voice is not None else -1
    if speaker is not None:
        rows.append(config.speakers[speaker])
    elif voice is not None:
        rows.append(codec.pad)
    return [*rows, codec.pad], voice_row


def _instruct(config: Qwen3TtsConfig, speech: Speech) -> Sequence[int]:
    if config.task == "voice_design" and not speech.instruct:
        raise InvalidRequest("this checkpoint makes its voice from instructions", param="instructions")
    return speech.instruct if config.follows_instructions else ()


def _voice(config: Qwen3TtsConfig, speech: Speech) -> SpeakerVoice | None:
    voice = speech.voice
    if config.task != "base":
        if voice is not None:
            raise InvalidRequest("this checkpoint copies no voices from recordings", param="voice")
        if config.task == "voice_design" and (speech.speaker or "default").lower() != "default":
            raise InvalidRequest("this checkpoint has no voices by name: describe one in `instructions`", param="voice")
        return None
    if voice is None:
        raise InvalidRequest("this checkpoint speaks with the voice of a recording; none was given", param="voice")
    codes, width = voice.codes, config.backbone.width
    fits = voice.embedding.shape == (width,) and codes.ndim == 2 and codes.shape[1] == config.books
    if not fits or (codes.size and not 0 <= codes.min() <= codes.max() < config.codes):
        raise InvalidRequest("the voice was made for another checkpoint", param="voice")
    return voice
