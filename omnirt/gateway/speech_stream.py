"""`/v1/audio/speech/stream`, a WebSocket: text in as it is written, speech out as it is made, utterance by utterance.

    client                                        server
    session.config {fields of speech, ...}
    input.text {text} ...                         audio.start, binary frames ..., audio.done    (each unit of text)
    input.done                                    session.done                                  (each utterance)
    session.close                                 error {message, code, param}                  (at any time)

Two tasks: one reads and feeds the machine (`utterances`), one speaks the units in order. What either of them may hold
is bounded: by then the other side waits, or is closed. Whatever ends the connection ends what it had under way.
"""

from __future__ import annotations

import asyncio

from aiohttp import WSCloseCode, WSMsgType, web

from omnirt.errors import OmnirtError, Overloaded
from omnirt.gateway.auth import SUBPROTOCOL_KEY
from omnirt.gateway.core import Core
from omnirt.gateway.cors import origin_headers
from omnirt.gateway.errors import ApiError, Refusal
from omnirt.gateway.socket_out import SocketOut
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.stream_settings import Settings, StreamSettings
from omnirt.gateway.stream_voice import Item, StreamVoice, complaint_of
from omnirt.gateway.speech_unit import Unit
from omnirt.gateway.utterances import (
    Abort,
    Begin,
    Bounds,
    Close,
    Complain,
    Configure,
    Effect,
    Flush,
    Lost,
    More,
    Utterances,
    Whole,
)

UNITS_MAX = 16
"""Units of text that wait to be spoken. Then nothing is read from the client until one is done."""
FULL_RETRY_S = 5.0


class SpeechStreams:
    """All connections."""

    def __init__(self, core: Core, pipeline: SpeechPipeline) -> None:
        self._core = core
        self._pipeline = pipeline
        self._open: set[web.WebSocketResponse] = set()

    async def connect(self, request: web.Request) -> web.StreamResponse:
        self._pipeline.check({})
        _check_upgrade(request, self._core)
        if len(self._open) >= self._core.config.sockets_max:
            raise Overloaded(f"{len(self._open)} connections are open already.", retry_after_s=FULL_RETRY_S)
        config = self._core.config
        socket = web.WebSocketResponse(
            protocols=_protocols(request),
            compress=False,
            max_msg_size=max(config.socket_config_bytes_max, config.socket_text_bytes_max) + 1,
            decode_text=False,
            timeout=config.socket_config_s,
        )
        self._open.add(socket)
        try:
            await socket.prepare(request)
            await SpeechStream(self._core, self._pipeline, request, socket).run()
        finally:
            self._open.discard(socket)
        return socket

    async def close(self) -> None:
        """The server stops."""
        closing = [socket.close(code=WSCloseCode.GOING_AWAY, message=b"shutting down") for socket in self._open]
        await asyncio.gather(*closing, return_exceptions=True)


class SpeechStream:
    """One connection."""

    def __init__(
        self, core: Core, pipeline: SpeechPipeline, request: web.Request, socket: web.WebSocketResponse
    ) -> None:
        config = core.config
        self._config = config
        self._chars_max = core.service.plan.limits.input_chars_max
        self._socket = socket
        self._out = SocketOut(request, socket, config.stall_s)
        self._settings = StreamSettings(core, pipeline)
        self._voice = StreamVoice(core, pipeline, request, self._out)
        self._machine = Utterances(
            Bounds(self._chars_max, config.socket_config_bytes_max, config.socket_text_bytes_max)
        )
        self._items: asyncio.Queue[Item] = asyncio.Queue(UNITS_MAX)
        self._unit: Unit | None = None
        """The one that began last."""
        self._current = Settings()
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        """When the client last said something."""

    async def run(self) -> None:
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._speak())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._settings.close()
        for task in done:
            task.result()

    # ------------------------------------------------------------ reading

    async def _read(self) -> None:
        deadline_s = self._loop.time() + self._config.socket_config_s
        while not self._socket.closed:
            limit_s = self._idle_left_s() if self._machine.is_set else deadline_s - self._loop.time()
            try:
                message = await self._socket.receive(timeout=max(limit_s, 1e-3))
            except TimeoutError:
                if self._machine.is_set and self._idle_left_s() > 0:
                    continue
                await self._give_up()
                return
            self._heard_s = self._loop.time()
            if message.type == WSMsgType.TEXT:
                effects = self._machine.received(message.data)
            elif message.type == WSMsgType.BINARY:
                effects = self._machine.binary()
            else:
                return
            if await self._do(effects):
                return

    def _idle_left_s(self) -> float:
        """How long nothing more may happen. Whole units that are not spoken yet have a deadline of their own."""
        limit_s = self._config.socket_idle_s
        if self._voice.is_speaking_whole or any(isinstance(item, Unit) and item.is_whole for item in self._waiting()):
            return limit_s
        return max(self._heard_s, self._out.said_s) + limit_s - self._loop.time()

    def _waiting(self) -> list[Item]:
        return list(self._items._queue)  # type: ignore[attr-defined]

    async def _give_up(self) -> None:
        what = "Nothing came" if self._machine.is_set else "No session.config came"
        limit_s = self._config.socket_idle_s if self._machine.is_set else self._config.socket_config_s
        await self._out.event({"type": "error", "message": f"{what} for {limit_s:g} s.", "code": "timeout"})
        await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"idle")

    # ------------------------------------------------------------ effects

    async def _do(self, effects: list[Effect]) -> bool:
        """Whether the connection is over."""
        for effect in effects:
            if isinstance(effect, Begin):
                unit = Unit(effect.utterance, effect.sentence, self._current.voicing(), effect.text, self._chars_max)
                self._unit = unit
                await self._items.put(unit)
            elif isinstance(effect, More | Whole | Abort):
                self._change(effect)
            elif isinstance(effect, Flush | Lost):
                await self._items.put(effect)
            elif isinstance(effect, Complain):
                await self._out.event(event_of(effect))
            elif isinstance(effect, Configure):
                await self._configure(effect)
            else:
                assert isinstance(effect, Close)
                await self._items.join()
                await self._socket.close()
                return True
        return False
