"""What travels between stages: small structs whose array fields are numpy arrays.

A payload class is a msgspec Struct; array fields are annotated `np.ndarray` and travel as raw bytes beside the
header (see `codec`). Stages declare the classes they accept and emit, so no registry is needed. The four classes of
the field are here (hidden states, codec codes, KV blocks, latents) with what goes to and comes from clients; a stage
family may define its own payloads beside itself.

A received array is read-only and belongs to the receiver for the duration of the step; copy it to keep it beyond.
What a step emits may hold it: the cell copies what it must.
"""

from __future__ import annotations

from typing import Any, Self, TypeVar

import msgspec
import numpy as np


class Payload(msgspec.Struct, frozen=True):
    """Base of everything that travels on an edge."""

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """One payload of `parts` in order: text, tuples and arrays (axis 0) are joined, the rest is the first's."""
        if len(parts) == 1:
            return parts[0]
        return cls(**{name: _in_order([getattr(part, name) for part in parts]) for name in cls.__struct_fields__})

    def nbytes(self) -> int:
        """Bytes held in array fields."""
        values = (getattr(self, name) for name in self.__struct_fields__)
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


P = TypeVar("P", bound=Payload)


def _in_order(column: list[Any]) -> Any:
    first = column[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(column)
    if isinstance(first, str):
        return "".join(column)
    if isinstance(first, tuple):
        return tuple(item for items in column for item in items)
    return first


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One token that was chosen, and the likeliest there were (natural logarithms)."""

    token: str
    raw: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


class Text(Payload, frozen=True):
    """`logprobs`: of the tokens that gave the text, when the request asked for them."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class Pcm(Payload, frozen=True):
    """Mono audio. `samples`: [T] int16 or float32 in -1..1; `rate` in Hz. `clip`: which of a request's recordings it
    belongs to; a long one travels in several payloads."""

    samples: np.ndarray
    rate: int
    clip: int = 0


class Part(msgspec.Struct, frozen=True):
    """A piece of a message: `text`, or the `clip`-th recording of the request."""

    text: str = ""
    clip: int = -1


class Message(msgspec.Struct, frozen=True):
    """`role`: system, user, assistant or tool."""

    role: str
    parts: tuple[Part, ...]
    name: str = ""


_messages = msgspec.msgpack.Decoder(tuple[Message, ...])


class Chat(Payload, frozen=True):
    """A conversation so far. `packed`: [B] uint8, the messages; an array, so that a long one has a slot of its own."""

    packed: np.ndarray

    @classmethod
    def of(cls, messages: tuple[Message, ...]) -> Chat:
        return cls(np.frombuffer(msgspec.msgpack.encode(messages), np.uint8))

    def messages(self) -> tuple[Message, ...]:
        return _messages.decode(self.packed.tobytes())


class Prompt(Payload, frozen=True):
    """Text to go on with. `packed`: [B] uint8, in UTF-8; an array, as a long one would fill a ring of headers."""

    packed: np.ndarray

    @classmethod
    def of(cls, text: str) -> Prompt:
        return cls(np.frombuffer(text.encode(), np.uint8))

    def text(self) -> str:
        return self.packed.tobytes().decode()


class Word(msgspec.Struct, frozen=True, array_like=True):
    """Seconds from the beginning of the recording."""

    text: str
    start_s: float
    end_s: float
    probability: float = 0.0


class Transcript(Payload, frozen=True):
    """What was said in one stretch of recording `clip`, in seconds from its beginning. The last payload of a clip has
    `last` set (and no text when nothing was said since the one before); `clip_s` is then the recording's length."""

    text: str
    clip: int = 0
    start_s: float = 0.0
    end_s: float = 0.0
    language: str = ""
    words: tuple[Word, ...] = ()
    avg_logprob: float = 0.0
    no_speech_prob: float = 0.0
    compression_ratio: float = 0.0
    temperature: float = 0.0
    tokens: tuple[int, ...] = ()
    last: bool = False
    clip_s: float = 0.0


class CodecFrames(Payload, frozen=True):
    """RVQ codes, a row for each codec frame. `codes`: [F, Q] integers. The first `unheard` frames lead the decoder in;
    their sound is not part of the output."""

    codes: np.ndarray
    unheard: int = 0


class HiddenStates(Payload, frozen=True):
    """`states`: [T, D]; `ids`: [T] the tokens they belong to."""

    states: np.ndarray
    ids: np.ndarray


class Latents(Payload, frozen=True):
    """`latents`: model-specific shape."""

    latents: np.ndarray


class KvBlocks(Payload, frozen=True):
    """`blocks`: [N, ...] cache blocks; `layer` they belong to."""

    blocks: np.ndarray
    layer: int


class Frames(Payload, frozen=True):
    """Pictures. `pixels`: [N, H, W, 3] uint8."""

    pixels: np.ndarray


class Actions(Payload, frozen=True):
    """`actions`: [H, D] float32, one row per control step."""

    actions: np.ndarray


def owned(payload: P, borrowed: list[np.ndarray]) -> P:
    """`payload`, with those of its arrays copied that lie in `borrowed` memory (a lease that is about to end)."""
    copies: dict[str, object] = {}
    for name in payload.__struct_fields__:
        value = getattr(payload, name)
        is_tensor = hasattr(value, "data_ptr") and value.device.type == "cpu"  # of torch, which is never imported here
        array: Any = value.detach().numpy() if is_tensor else value
        if type(array) is np.ndarray and any(np.may_share_memory(array, view) for view in borrowed):
            copies[name] = value.clone() if is_tensor else value.copy()
    return msgspec.structs.replace(payload, **copies) if copies else payload


MODALITIES: dict[str, type[Payload]] = {
    "chat": Chat,
    "prompt": Prompt,
    "text": Text,
    "audio": Pcm,
    "transcript": Transcript,
    "image": Frames,
    "video": Frames,
    "actions": Actions,
}
"""What a client edge of each modality carries. `prompt` is text to go on with as it stands; `text` is to be spoken."""
