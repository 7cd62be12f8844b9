"""What all surfaces share: the service, the configuration, and the threads that encode.

Invariant: the loop only moves messages. What computes or touches a disk goes through `Core.threaded`, a fixed number
of threads; a request has at most one piece of work there, so the queue is bounded by the requests admitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from omnirt.clock import unix_s
from omnirt.errors import NotReady, Unsupported
from omnirt.gateway.auth import load_keys
from omnirt.gateway.body import as_object
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import invalid, unknown_model, unsupported_endpoint
from omnirt.gateway.facts import PipelineFacts, gather
from omnirt.gateway.holding import Holding
from omnirt.gateway.media import encoder_for
from omnirt.gateway.voice_store import VoiceStore
from omnirt.metrics import Metrics
from omnirt.session.service import Service
from omnirt.trace_files import Traces

P = ParamSpec("P")
T = TypeVar("T")


class Core:
    def __init__(self, service: Service, config: GatewayConfig) -> None:
        self.service = service
        self.config = config
        self.keys = load_keys(config.keys_file)
        self.traces = Traces(config.trace_dir)
        self.metrics = Metrics(self.traces.add)
        self.created_s = unix_s()
        self.voices = VoiceStore(config.voices_dir, config.voices_max) if config.voices_dir else None
        self.keeping = asyncio.Lock()
        """Held while a voice is put into the store."""
        self.recordings = Holding(config.recordings_s_max, "decoded audio")
        """Seconds, of all requests."""
        self._threads = ThreadPoolExecutor(config.encode_threads, thread_name_prefix="gateway")

    def facts(self, stages: Iterable[str] | None = None) -> PipelineFacts:
        """Of all stages, or of those that a surface uses: what others act on does not count there."""
        said = self.service.facts()
        chosen = said if stages is None else {name: said[name] for name in stages if name in said}
        return gather(self.service.plan, chosen)

    def model_names(self) -> tuple[str, ...]:
        return (self.service.plan.name, *self.service.plan.aliases)

    def check(self, body: object, able: bool, cannot: str) -> str:
        """The name by which the body asks for this pipeline. Raises 404 for another one; 501 where it is not `able`,
        `cannot` being what to say then; 503 while what it can do is not known."""
        name = self.model_of(body)
        if not able:
            raise unsupported_endpoint(f"The model {self.service.plan.name} {cannot}.")
        self.check_loaded()
        return name

    def model_of(self, body: object) -> str:
        """The body's `model`, 404 where that is another one; none means the only one there is."""
        name = (as_object(body) or {}).get("model")
        if name is None:
            return self.service.plan.name
        if not isinstance(name, str):
            raise invalid("model must be a string.", "model")
        if name not in self.model_names():
            raise unknown_model(name, self.model_names())
        return name

    def check_loaded(self) -> None:
        """503 while loading: what the stages can do is not known yet, so nothing can be judged."""
        if self.service.condition() == "loading":
            waiting = ", ".join(stage.name for stage in self.service.state().stages if stage.state != "ready")
            raise NotReady(f"Loading: {waiting}.", reason="model_loading", retry_after_s=2.0)

    async def threaded(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def warm(self) -> None:
        """Import the codec library before the first request needs it."""
        self._threads.submit(_import_codecs)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.traces.close()


def _import_codecs() -> None:
    try:
        encoder_for("mp3", 24_000).flush()
    except Unsupported:  # said to whoever asks for a format that needs it
        return
