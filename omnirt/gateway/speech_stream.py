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
from omnirt.gateway.speech_unit import Unit
from omnirt.gateway.stream_settings import Settings, StreamSettings
from omnirt.gateway.stream_voice import Item, StreamVoice, complaint_of, error_event
from omnirt.gateway.utterances import (
    Abort,
    Begin,
    Bounds,
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
FAREWELL_S = 2.0
"""How long a client that is told of the end may take to agree."""


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
            timeout=FAREWELL_S,
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
        self._loader = StreamSettings(core, pipeline)
        self._settings: Settings | None = None
        self._voice = StreamVoice(core, pipeline, request, self._out)
        bounds = Bounds(self._chars_max, config.socket_config_bytes_max, config.socket_text_bytes_max)
        self._machine = Utterances(bounds)
        self._items: asyncio.Queue[Item] = asyncio.Queue(UNITS_MAX)
        self._unit: Unit | None = None
        """The one that began last."""
        self._begun = 0
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._heard_s = self._loop.time()
        """`_heard_s`: when the client last said something."""

    async def run(self) -> None:
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._speak())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loader.close()
        for task in done:
            task.result()

    async def _speak(self) -> None:
        while True:
            await self._voice.say(await self._items.get())
            self._items.task_done()

    # ------------------------------------------------------------ reading

    async def _read(self) -> None:
        is_over = False
        while not is_over:
            left_s = self._patience_s()
            if left_s <= 0:
                await self._give_up()
                return
            try:
                message = await self._socket.receive(timeout=left_s)
            except TimeoutError:  # or only until it was to be asked again
                continue
            self._heard_s = self._loop.time()
            if message.type == WSMsgType.TEXT:
                is_over = await self._do(self._machine.received(message.data))
            elif message.type == WSMsgType.BINARY:
                is_over = await self._do(self._machine.binary())
            else:
                is_over = True

    def _patience_s(self) -> float:
        """How long the client may still say nothing. While it hears units that have all their text, it need not."""
        now_s = self._loop.time()
        if not self._machine.is_set:
            return self._opened_s + self._config.socket_config_s - now_s
        is_open = self._unit is not None and not self._unit.is_whole
        if self._begun - self._voice.spoken > is_open:
            return self._config.socket_idle_s
        return max(self._heard_s, self._out.said_s) + self._config.socket_idle_s - now_s

    async def _give_up(self) -> None:
        config, is_set = self._config, self._machine.is_set
        if self._unit is not None and not self._unit.is_whole:
            self._unit.abort()
        text = f"Nothing came for {config.socket_idle_s:g} s." if is_set else "session.config did not come."
        await self._out.event(error_event(Complain(text, "timeout")))
        await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"timeout")

    # ------------------------------------------------------------ effects

    async def _do(self, effects: list[Effect]) -> bool:
        """Whether the connection is over."""
        for effect in effects:
            if isinstance(effect, Begin):
                await self._begin(effect)
            elif isinstance(effect, More):
                await self._more(effect.text)
            elif isinstance(effect, Whole | Abort):
                self._change(effect)
            elif isinstance(effect, Lost | Flush):
                await self._items.put(effect)
            elif isinstance(effect, Complain):
                await self._out.event(error_event(effect))
            elif isinstance(effect, Configure):
                await self._configure(effect)
            else:
                await self._items.join()
                await self._socket.close()
                return True
        return False

    async def _begin(self, effect: Begin, *, is_further: bool = False) -> None:
        settings = self._settings
        assert settings is not None, "text came before settings"
        place = effect.utterance, effect.sentence
        self._unit = Unit(*place, settings, effect.text, self._chars_max, is_further=is_further)
        self._begun += 1
        await self._items.put(self._unit)

    async def _more(self, text: str) -> None:
        """Goes on with the unit; where its speech has ended already, with another one, so that this is heard, too."""
        unit = self._unit
        assert unit is not None, "no unit began"
        if not unit.is_over:
            unit.add(text)
        elif text.strip() and not unit.has_failed:
            await self._begin(Begin(unit.utterance, unit.sentence, text.lstrip()), is_further=True)

    def _change(self, effect: Whole | Abort) -> None:
        assert self._unit is not None, "no unit began"
        if isinstance(effect, Whole):
            self._unit.finish()
        else:
            self._unit.abort()

    async def _configure(self, effect: Configure) -> None:
        try:
            self._settings = await self._loader.load(effect.fields)
        except (ApiError, OmnirtError) as error:
            await self._do(self._machine.misconfigured(complaint_of(error)))
        else:
            self._machine.configured(self._settings.granularity)


def _check_upgrade(request: web.Request, core: Core) -> None:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        text = "This is a WebSocket; ask for an upgrade."
        raise ApiError(Refusal(426, "upgrade_required", text, headers={"Upgrade": "websocket"}))
    origin = request.headers.get("Origin")
    # Browsers ask nobody before they open a WebSocket: the page's origin is looked at here.
    if origin and "Access-Control-Allow-Origin" not in origin_headers(origin, core.config.cors_origins):
        raise ApiError(Refusal(403, "forbidden", "This origin may not call this server.", type="permission_error"))


def _protocols(request: web.Request) -> tuple[str, ...]:
    """One of those that the client offers, as browsers want; never the one that holds its key."""
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    return tuple(name for name in offered if name and SUBPROTOCOL_KEY not in name)[:1]
