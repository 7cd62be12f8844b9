"""The events of a streamed chat answer, as bytes.

A token costs one JSON string: everything around it is the same in every chunk of an answer and is encoded once.
"""

from __future__ import annotations

import binascii
from typing import Protocol

import msgspec
from msgspec import Struct

from omnirt.wire.payload import TokenLogprob

DONE = b"data: [DONE]\n\n"
encode = msgspec.json.Encoder().encode


class AnswerId(Struct, frozen=True):
    """What all chunks of an answer have in common."""

    id: str
    created_s: int
    model: str


class Chunks(Protocol):
    """The events of one choice."""

    def begin(self) -> bytes: ...

    def text(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> bytes: ...

    def audio(self, data: bytes) -> bytes: ...

    def audio_ends(self, expires_at_s: int) -> bytes: ...

    def end(self, finish_reason: str) -> bytes: ...


class Frame:
    """An event around one choice: `head + <the choice's own> + tail`."""

    def __init__(self, answer: AnswerId, object: str, include_usage: bool) -> None:
        same = {"id": answer.id, "object": object, "created": answer.created_s, "model": answer.model}
        self._same = b"data: " + encode(same | {"system_fingerprint": None})[:-1] + b',"choices":['
        self._usage = b',"usage":null' if include_usage else b""
        self.include_usage = include_usage

    def around(self, index: int, name: str) -> tuple[bytes, bytes, bytes]:
        """Before the value of the choice's field `name`, after it, and after it where more fields of the choice
        follow."""
        head = self._same + f'{{"index":{index},"{name}":'.encode()
        end = b"]" + self._usage + b"}\n\n"
        return head, b',"logprobs":null,"finish_reason":null}' + end, end

    def usage(self, usage: dict[str, object]) -> bytes:
        return self._same + b'],"usage":' + encode(usage) + b"}\n\n"


class ChatChunks:
    """`shows_text`: the text is content. `audio_id`: not empty where the answer is spoken; the text is then (also) the
    transcript."""

    def __init__(self, frame: Frame, index: int, audio_id: str = "", *, shows_text: bool = True) -> None:
        self._head, self._tail, self._end = frame.around(index, "delta")
        self._shows_text = shows_text
        self._spoken = bool(audio_id)
        # The first thing that is said of the audio carries its id.
        self._id_once = b'"id":' + encode(audio_id) + b"," if audio_id else b""

    def begin(self) -> bytes:
        content = b',"content":""' if self._shows_text else b""
        return self._head + b'{"role":"assistant"' + content + b"}" + self._tail

    def text(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> bytes:
        said = encode(text)
        delta = b'{"content":' + said + b"}"
        if self._spoken:
            content = b'"content":' + said + b"," if self._shows_text else b""
            delta = b"{" + content + b'"audio":{' + self._id_once + b'"transcript":' + said + b"}}"
            self._id_once = b""
        if logprobs:
            return self._head + delta + b',"logprobs":' + encode(chat_logprobs(logprobs)) + self._unfinished()
        return self._head + delta + self._tail

    def audio(self, data: bytes) -> bytes:
        base64 = binascii.b2a_base64(data, newline=False)
        delta = b'{"audio":{' + self._id_once + b'"data":"' + base64 + b'"}}'
        self._id_once = b""
        return self._head + delta + self._tail

    def audio_ends(self, expires_at_s: int) -> bytes:
        delta = b'{"audio":{' + self._id_once + b'"expires_at":%d}}' % expires_at_s
        self._id_once = b""
        return self._head + delta + self._tail

    def end(self, finish_reason: str) -> bytes:
        return self._head + b'{},"logprobs":null,"finish_reason":' + encode(finish_reason) + b"}" + self._end

    def _unfinished(self) -> bytes:
        return b',"finish_reason":null}' + self._end


def chat_logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, object]:
    content = [_token(token) | {"top_logprobs": [_token(top) for top in token.top]} for token in tokens]
    return {"content": content, "refusal": None}


def _token(token: TokenLogprob) -> dict[str, object]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.raw)}
