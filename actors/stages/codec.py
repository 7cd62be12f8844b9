"""Codec frames in, samples out: the streaming decoder as a stage.

    frames -> pieces of one call -> samples, in order

A call takes all that waits, of any requests and in any lengths. Its result is looked at later, so the device computes
while the loop does other things. While one is under way frames gather for the next, because a call for many rows costs
little more than one for few; chunks that open or end an answer are decoded at once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from omnirt.actors.engines.device import ensure
from omnirt.actors.models.sources import resolve
from omnirt.actors.stages.samples import to_int16
from omnirt.errors import ConfigError
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import CodecFrames, Pcm

if TYPE_CHECKING:
    from omnirt.actors.engines.codec.decoder import Call, StreamingDecoder
    from omnirt.actors.engines.codec.form import Snapshot
    from omnirt.kernels.codec_layout import CodecShape

CHUNK_SAMPLES_MAX = 30_720
"""16 frames at full size, 61,440 bytes. What is longer leaves in several chunks."""
CALLS_MAX = 8
"""Under way at a time; with more, the samples of the first would only be late."""


class CodecOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weights: str | tuple[str, ...]
    """A checkpoint's folder or its repository on the hub; of several, the first to be had."""
    rows: int = 64
    """Requests at a time."""
    call_frames: int = 128
    """So many waiting frames are worth a call while another one is under way."""
    lead_ins: int = 32
    """Recordings of which the decoder's state behind them is kept (3.4 MB each at full size): what many requests begin
    with is decoded once."""
    dtype: str = "auto"
    """`float32`, `bfloat16`; auto is bfloat16 on a GPU."""

    def check(self) -> None:
        """Raises ConfigError."""
        for name, least in (("rows", 1), ("call_frames", 1), ("lead_ins", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")


class _Voice:
    """A request: its slot in the decoder, and what of it waits or is under way."""

    def __init__(self) -> None:
        self.slot: int | None = None
        """From its first call on, until all of it is computed."""
        self.waiting: list[np.ndarray] = []
        """Codes, [F, Q] each."""
        self.unheard = 0
        """How many frames of them lead in."""
        self.started = False
        self.heard = False
        self.closed = False
        self.calls = 0
        """Under way."""
        self.done: list[np.ndarray] = []

    @property
    def is_over(self) -> bool:
        return self.closed and not (self.waiting or self.calls or self.done)


class Codec(EngineStage):
    accepts = {"frames": CodecFrames}
    emits = {"audio": Pcm}
    Options = CodecOptions

    _decoder: StreamingDecoder

    def start(self, ctx: Context) -> None:
        self.options.check()
        self._decoder = load_decoder(self.options, ctx.device, ctx.threads, ctx.report)
        self._calls: deque[tuple[Call, list[_Voice]]] = deque()
        self._waiting: dict[RequestId, Request] = {}
        """Those whose frames sleep until a slot is free."""
        self._call_count = 0
        self._lead_ins: OrderedDict[bytes, Snapshot] = OrderedDict()

    def facts(self) -> dict[str, Any]:
        return {"sample_rate": self._decoder.sample_rate}

    def figures(self) -> dict[str, float]:
        return {"calls": self._call_count}

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        frames: CodecFrames = chunk.payload
        voice = self._of(chunk.request)
        voice.waiting.append(np.array(frames.codes, np.int32))
        voice.unheard += frames.unheard

    def close(self, ctx: Context, request: Request) -> None:
        self._of(request).closed = True

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        # Of a call that opens an answer the samples are waited for, here and not where it was launched: in between the
        # talker of the same process has launched its next frame, so the device has work when this one is done.
        self._collect(wait=any(not voice.heard for _, voices in self._calls for voice in voices))
        self._launch(rows)
        return [emission for request in rows for emission in self._say(ctx, request)]

    def forget(self, ctx: Context, request: Request) -> None:
        voice, request.state = request.state, None
        self._waiting.pop(request.id, None)
        if voice is not None:
            self._leave(ctx, voice)

    def _of(self, request: Request) -> _Voice:
        if request.state is None:
            request.state = _Voice()
        return request.state

    def _has_slot(self, voice: _Voice) -> bool:
        """Where more requests speak than the decoder has slots, their frames wait for one."""
        if voice.slot is None and self._decoder.slots_free:
            voice.slot = self._decoder.open()
        return voice.slot is not None

    def _leave(self, ctx: Context, voice: _Voice) -> None:
        if voice.slot is not None:
            self._decoder.close(voice.slot)
            voice.slot = None
            for request in self._waiting.values():
                ctx.wake(request)
            self._waiting.clear()

    # ------------------------------------------------------------ calls

    def _launch(self, rows: list[Request]) -> None:
        """One call for all that waits, if it is worth it now."""
        waiting = [voice for request in rows if (voice := self._of(request)).waiting and self._has_slot(voice)]
        if not waiting or not self._is_worth_a_call(waiting):
            return
        if len(self._calls) >= CALLS_MAX:
            self._collect(wait=True)
        from omnirt.actors.engines.codec.decoder import Piece

        pieces = []
        for voice in waiting:
            assert voice.slot is not None
            codes = voice.waiting[0] if len(voice.waiting) == 1 else np.concatenate(voice.waiting)
            if voice.unheard:
                self._lead_in(voice.slot, codes[: voice.unheard])
            pieces.append(Piece(voice.slot, codes[voice.unheard :]))
            voice.waiting, voice.unheard = [], 0
            voice.started = True
            voice.calls += 1
        self._calls.append((self._decoder.launch(pieces), waiting))
        self._call_count += 1

    def _lead_in(self, slot: int, codes: np.ndarray) -> None:
        """Bring a new slot to where it would be behind these frames."""
        from omnirt.actors.engines.codec.decoder import Piece

        key = codes.tobytes()
        known = self._lead_ins.get(key)
        if known is not None:
            self._lead_ins.move_to_end(key)
            self._decoder.restore(slot, known)
            return
        self._decoder.launch([Piece(slot, codes, len(codes))])
        self._lead_ins[key] = self._decoder.snapshot(slot)
        if len(self._lead_ins) > self.options.lead_ins:
            self._lead_ins.popitem(last=False)

    def _is_worth_a_call(self, waiting: list[_Voice]) -> bool:
        if not self._calls or any(not voice.started or voice.closed for voice in waiting):
            return True
        return sum(len(codes) for voice in waiting for codes in voice.waiting) >= self.options.call_frames

    def _collect(self, *, wait: bool) -> None:
        """Samples of the calls that are done; of all of them, if need be."""
        while self._calls and (wait or self._calls[0][0].ready()):
            call, voices = self._calls.popleft()
            for voice, samples in zip(voices, call.samples(), strict=True):
                voice.calls -= 1
                voice.heard = True
                voice.done.append(samples)

    def _say(self, ctx: Context, request: Request) -> list[Emission]:
        voice = self._of(request)
        said: list[Emission] = []
        if voice.done:
            samples = voice.done[0] if len(voice.done) == 1 else np.concatenate(voice.done)
            voice.done = []
            pcm = to_int16(samples)
            said = [
                Emission(request, "audio", Pcm(pcm[start : start + CHUNK_SAMPLES_MAX], self._decoder.sample_rate))
                for start in range(0, len(pcm), CHUNK_SAMPLES_MAX)
            ]
        if voice.is_over:
            self._leave(ctx, voice)
            return [*said, Emission(request, "audio", None, end=True)]
        if voice.waiting and voice.slot is None:
            self._waiting[request.id] = request
            return []
        if not said and not voice.waiting and not voice.calls:
            return []  # it sleeps until more frames come
        return said or [Emission(request, "audio", None)]


def load_decoder(options: CodecOptions, device: str, threads: int, report: Callable[[str], None]) -> StreamingDecoder:
    """The decoder that `options` name, ready for requests. Raises ConfigError."""
    options.check()
    ensure(device)
    import torch

    from omnirt.actors.engines.codec.decoder import Piece, StreamingDecoder
    from omnirt.actors.models.qwen3_tts.codec_weights import read_codec

    weights = options.weights
    folder = resolve(weights if isinstance(weights, str) else list(weights), report) / "speech_tokenizer"
    torch.set_grad_enabled(False)
    if device == "cpu":
        torch.set_num_threads(threads)
    codec = read_codec(folder)
    if device != "cpu":
        _check_room(codec.shape, options, torch.cuda.mem_get_info(device)[0])
    report("decoder")
    decoder = StreamingDecoder(codec, options.rows, device, options.dtype)
    slot = decoder.open()
    decoder.launch([Piece(slot, np.zeros((1, decoder.shape.books), np.int32))]).samples()
    decoder.close(slot)
    return decoder


def _check_room(shape: CodecShape, options: CodecOptions, free_bytes: int) -> None:
    """Raises ConfigError when the decoder will not fit."""
    from omnirt.actors.engines.codec.memory import codec_bytes

    wanted = codec_bytes(shape, options.rows, "bfloat16" if options.dtype == "auto" else options.dtype)
    if wanted.total > free_bytes:
        have = f"{free_bytes / 1e9:.2f} GB of the device are free"
        raise ConfigError(
            f"the decoder does not fit: it needs {wanted}; {have}; fewer rows (now {options.rows}) would help"
        )
