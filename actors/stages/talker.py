"""Text (and a speaker's voice) in, codec frames out: a codec-frame model behind its prompt.

    text  -> ids -> prompt --\\
    voice -------------------+-> rows of the engine, one frame a step -> chunks of frames
    more text -> lines ------/

What is wrong with a request is said when its prompt is made, before it takes part in a step. A request that finds no
room in the cache waits for it as long as it may live. All requests are rows of one batch; those that nobody reads stand
still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import asdict

from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.stages.chunking import Chunks
from omnirt.actors.stages.talker_options import TalkerOptions
from omnirt.actors.stages.talker_params import CLONE_HONOURED, HONOURED, frames_for, wishes
from omnirt.actors.stages.talker_row import TalkerRow, leaving_of
from omnirt.actors.text.tokenizer import TooLongError
from omnirt.clock import NS, monotonic_ns
from omnirt.errors import InvalidRequest
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import CodecFrames, Text

if TYPE_CHECKING:
    from omnirt.actors.engines.frame.engine import FrameSequence, Produced
    from omnirt.actors.models.qwen3_tts.prompt import Prompt
    from omnirt.actors.models.qwen3_tts.speaker import Speaker

LEAD_IN_FRAMES = 72
"""Of the recording that a voice is copied from, what the decoder hears before the first frame: its window."""
TOGETHER_POSITIONS = 4096
"""Rows of prompts are made together up to about so many: launches cost the same for one and for many."""
OVERTAKEN_S = 5.0
"""Who has waited so long for room in the cache is let in before whoever needs less and came later."""


class Talker(EngineStage):
    accepts = {"text": Text, "voice": SpeakerVoice}
    emits = {"frames": CodecFrames}
    Options = TalkerOptions

    _speaker: Speaker

    def start(self, ctx: Context) -> None:
        from omnirt.actors.models.qwen3_tts.speaker import load_speaker

        self._speaker = load_speaker(self.options, ctx.device, ctx.threads, ctx.report)
        self._waiting: dict[RequestId, Request] = {}
        """Those that sleep until there is room."""

    def facts(self) -> dict[str, Any]:
        from omnirt.actors.models.qwen3_tts.languages import facts

        config = self._speaker.config
        honoured = [*HONOURED, *(CLONE_HONOURED if config.task == "base" else ())]
        said: dict[str, Any] = {"parameters": honoured, "sample_rate": self._speaker.sample_rate}
        return said | facts(config) | ({"voice_design": True} if config.task == "voice_design" else {})

    def figures(self) -> dict[str, float]:
        engine = self._speaker.engine
        return {**asdict(engine.figures), "rows_max": engine.rows_max, "pages_max": engine.pages_max}

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        row = self._of(chunk.request)
        if isinstance(chunk.payload, SpeakerVoice):
            embedding, codes = chunk.payload.embedding, chunk.payload.codes
            row.voice = SpeakerVoice(np.array(embedding), np.array(codes, np.int32))
        elif row.incoming is None:
            row.text.append(chunk.payload.text)
        else:
            self._take(row, row.incoming.push(chunk.payload.text), last=False)
        self._prepare(row)

    def close(self, ctx: Context, request: Request) -> None:
        row = self._of(request)
        row.closed = True
        self._take(row, self._whole(row) if row.incoming is None else row.incoming.end(), last=True)
        self._prepare(row)

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        """A frame for each answer that has begun."""
        self._let_in([row for request in rows if (row := request.state).prompt is not None])
        running = {row.sequence: row for request in rows if (row := request.state).sequence is not None}
        for row in running.values():
            self._extend(row)
        produced = {one.sequence: one for one in self._speaker.engine.step(running)} if running else {}
        now_ns = monotonic_ns()
        for sequence, one in produced.items():
            running[sequence].take(one, now_ns)
        leaving = leaving_of(running.values(), now_ns)
        said = [emission for request in rows if (emission := self._say(request, produced, leaving)) is not None]
        if any(one.finish_reason for one in produced.values()):
            self._say_room(ctx)  # also to those that found none in this very step
        return said

    def forget(self, ctx: Context, request: Request) -> None:
        row, request.state = request.state, None
        self._waiting.pop(request.id, None)
        if row is not None and row.sequence is not None:
            self._speaker.engine.remove(row.sequence)
        self._say_room(ctx)

    def _say_room(self, ctx: Context) -> None:
        """A row came free, or somebody who was first in line is gone."""
        for request in self._waiting.values():
            ctx.wake(request)
        self._waiting.clear()

    def _of(self, request: Request) -> TalkerRow:
        if request.state is None:
            wished = wishes(request.params)
            sampling = self._speaker.sampling(request.params, request.seed, wished)
            sizes = self.options.chunk_frames
            if wished.first_chunk:
                sizes = (wished.first_chunk, *sizes[1:])
            incoming = self._speaker.tokens.incoming() if self._speaker.streams(wished) else None
            request.state = TalkerRow(wished, sampling, incoming, Chunks(sizes, self._speaker.frame_s))
        return request.state

    # ------------------------------------------------------------ before an answer

    def _whole(self, row: TalkerRow) -> list[int]:
        try:
            return self._speaker.tokens.text("".join(row.text), self.options.frames_max)
        except TooLongError:
            raise self._too_long() from None

    def _too_long(self) -> InvalidRequest:
        most = self.options.frames_max
        return InvalidRequest(f"the text has more than {most} tokens: say it in parts", param="input")

    def _take(self, row: TalkerRow, ids: list[int], *, last: bool) -> None:
        row.tokens += len(ids)
        if row.tokens > self.options.frames_max:
            raise self._too_long()
        if row.prompt is None and row.sequence is None:
            row.ids += ids
        elif ids or last:
            row.later.append((ids, last))
            row.lines += len(ids) + 2 * last
            if row.prompt is not None:  # no room yet: said now, not where it is let in with others
                self._speaker.engine.fits(len(row.prompt), row.sampling.frames_max, len(row.prompt.lines) + row.lines)
            self._extend(row)

    def _prepare(self, row: TalkerRow) -> None:
        """Make the prompt as soon as it can be. Raises InvalidRequest."""
        if row.prompt is not None or row.sequence is not None or (row.wishes.has_recording and row.voice is None):
            return
        speaker = self._speaker
        try:
            prompt = speaker.prompt(row.wishes, row.ids, row.voice, is_open=not row.closed)
        except TooLongError:
            raise InvalidRequest("instructions or ref_text are too long", param="instructions") from None
        if prompt is None:
            return  # it takes more text
        asked = row.wishes.frames_max
        frames = frames_for(len(row.ids), asked, self.options.frames_max) if row.closed else asked
        frames = min(frames or self.options.frames_max, row.sampling.frames_max)
        row.sampling = msgspec.structs.replace(row.sampling, frames_max=frames)
        if len(prompt) > self.options.prompt_max:
            raise self._too_large(row, len(prompt))
        speaker.engine.fits(len(prompt), frames, len(prompt.lines))
        row.prompt, row.is_open, row.since_ns = prompt, not row.closed, monotonic_ns()

    def _too_large(self, row: TalkerRow, positions: int) -> InvalidRequest:
        parts = {
            "input": len(row.ids),
            "instructions": len(self._speaker.tokens.instruct(row.wishes.instructions)),
            "ref_audio": 0 if row.voice is None else len(row.voice.codes),
        }
        most = max(parts, key=lambda name: parts[name])
        why = f"{self.options.prompt_max} at most, and {parts[most]} of them are {most}"
        return InvalidRequest(f"the prompt has {positions} positions, {why}: make that shorter", param=most)

    def _let_in(self, waiting: list[TalkerRow]) -> None:
        """Begin what there is room for, the longest waiting first. What else can be wrong was looked at before."""
        if not waiting:
            return
        now_ns, room = monotonic_ns(), self._speaker.engine.room()
        chosen: list[tuple[TalkerRow, Prompt]] = []
        positions = 0
        for row in sorted(waiting, key=lambda row: row.since_ns):
            prompt = row.prompt
            assert prompt is not None
            if room.take(len(prompt) + row.sampling.frames_max):
                chosen.append((row, prompt))
                positions += len(prompt) + len(prompt.lines)
                if positions >= TOGETHER_POSITIONS:
                    self._begin(chosen)
                    chosen, positions = [], 0
            elif now_ns - row.since_ns > OVERTAKEN_S * NS:
                break
        self._begin(chosen)

    def _begin(self, chosen: list[tuple[TalkerRow, Prompt]]) -> None:
        """Take a row of the engine for each."""
        if not chosen:
            return
        begun = self._speaker.embed([prompt for _, prompt in chosen])
        for (row, _), (rows, lines) in zip(chosen, begun, strict=True):
            row.sequence = self._speaker.engine.add(rows, row.sampling, lines, text_open=row.is_open)
            row.prompt = None

    def _extend(self, row: TalkerRow) -> None:
        while row.sequence is not None and row.later:
            ids, last = row.later[0]
            self._speaker.engine.extend(row.sequence, self._speaker.lines(ids, last), last)
            row.later.popleft()  # only now: a step that raised is run again

    # ------------------------------------------------------------ the answer

    def _say(
        self, request: Request, produced: dict[FrameSequence, Produced], leaving: set[TalkerRow]
    ) -> Emission | None:
        row: TalkerRow = request.state
        if row.sequence is None:  # it sleeps until there is room, or more of its input
            if row.prompt is not None:
                self._waiting[request.id] = request
            return None
        now_ns = monotonic_ns()
        one = produced.get(row.sequence)
        if one is not None and one.finish_reason:
            self._finish(request, row, one.finish_reason)
            return Emission(request, "frames", self._chunk(row, now_ns) if row.ready else None, end=True)
        if row in leaving:
            return Emission(request, "frames", self._chunk(row, now_ns))
        return None if row.sequence.waits_for_text else Emission(request, "frames", None)

    def _chunk(self, row: TalkerRow, now_ns: int) -> CodecFrames:
        codes = row.frames[0] if len(row.frames) == 1 else np.concatenate(row.frames)
        row.frames, row.ready = [], 0
        row.chunks.left(len(codes), now_ns)
        unheard = 0
        if not row.sent and row.voice is not None and len(row.voice.codes):
            lead = row.voice.codes[-LEAD_IN_FRAMES:]
            codes, unheard = np.concatenate([lead, codes]), len(lead)
        row.sent += len(codes) - unheard
        return CodecFrames(codes, unheard)

    def _finish(self, request: Request, row: TalkerRow, reason: str) -> None:
        assert row.sequence is not None
        request.report |= {
            "input_tokens": row.tokens,
            "output_tokens": row.sequence.frames,
            "finish_reason": reason,
        }
