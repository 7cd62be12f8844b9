"""A server that answers each chat with scripted bytes, for commands that talk to one."""

import base64
import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PATIENCE_S = 30.0


def chunk(delta: dict, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


class ScriptedServer:
    """`script(body)` gives the pieces of a streamed answer, or one (status, body) that refuses."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.script: Callable[[dict], Iterable[bytes] | tuple[int, bytes]] = lambda _: self.saying("hello", " there")
        self.release = threading.Event()
        self.gone = threading.Event()
        """Set when a client left before the end."""
        self.http: ThreadingHTTPServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    @staticmethod
    def saying(*words: str, sound: bytes = b"", end: str = "stop") -> list[bytes]:
        pieces = [chunk({"role": "assistant", "content": ""}), b": keep-alive\n\n"]
        pieces += [chunk({"content": word}) for word in words]
        if sound:
            half = len(sound) // 4 * 2
            pieces.append(chunk({"audio": {"id": "audio_1"}}))
            pieces += [
                chunk({"audio": {"data": base64.b64encode(part).decode()}}) for part in (sound[:half], sound[half:])
            ]
        return [*pieces, chunk({}, end), b"data: [DONE]\n\n"]

    def holding(self, *words: str, sound: bytes = b"") -> Iterable[bytes]:
        """The words, then nothing until `release`; then the end."""
        pieces = self.saying(*words, sound=sound)
        yield from pieces[:-2]
        for _ in range(int(PATIENCE_S / 0.02)):  # comments, so that a client that left is noticed
            if self.release.wait(0.02):
                break
            yield b": keep-alive\n\n"
        yield from pieces[-2:]


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            is_json = self.headers["Content-Type"] == "application/json"
            body = json.loads(raw) if is_json else {"form": raw}
            server.bodies.append({"path": self.path, **body})
            server.headers.append(dict(self.headers))
            answer = server.script(body)
            if isinstance(answer, tuple):
                self._whole(*answer)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for piece in answer:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except ConnectionError:
                server.gone.set()
                self.close_connection = True

        def _whole(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler


@pytest.fixture
def scripted():
    server = ScriptedServer()
    server.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.release.set()
    server.http.shutdown()
    server.http.server_close()
    thread.join(PATIENCE_S)
