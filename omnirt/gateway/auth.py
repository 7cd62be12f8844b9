"""Who may call. Keys come from a file that only its owner can read; a key is never logged, echoed or passed on.

Accepted: `Authorization: Bearer K`, `Authorization: Api-Key K`, `api-key: K`, and for browsers' WebSockets the
subprotocol `openai-insecure-api-key.K`. The check runs before the handler, so a WebSocket without a key is answered
401 in plain HTTP and never upgraded.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from omnirt.errors import ConfigError
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import ApiError, Refusal

DISCOVERY = ("/v1/models", "/v1/audio/models", "/v1/audio/voices")
SUBPROTOCOL_KEY = "openai-insecure-api-key."


class Keys:
    """The keys in force, kept as digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def label_of(self, key: str) -> str | None:
        """A name for limits and logs, the same for the same key; None for a wrong one."""
        digest = _digest(key)
        found = False
        for known in self._digests:  # all of them, so that time says nothing of which one matched
            found |= hmac.compare_digest(known, digest)
        return f"key_{digest.hex()[:12]}" if found else None


def load_keys(path: str) -> Keys:
    """The keys in `path`, one a line; empty lines and lines starting with # are skipped."""
    if not path:
        return Keys(())
    try:
        mode = Path(path).stat().st_mode
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the keys file {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"the keys file {path} is open to others; run: chmod 600 {path}")
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"the keys file {path} holds no key")
    return Keys(keys)


def caller_of(request: web.BaseRequest, keys: Keys, config: GatewayConfig) -> str:
    """The label of the caller's key, empty where none is needed. Raises 401."""
    if not keys or _is_open(request, config):
        return ""
    presented = _presented(request)
    label = keys.label_of(presented) if presented else None
    if label is None:
        text = "Incorrect API key provided." if presented else "No API key provided; send Authorization: Bearer <key>."
        raise ApiError(Refusal(401, "invalid_api_key", text, headers={"WWW-Authenticate": "Bearer"}))
    return label


def _is_open(request: web.BaseRequest, config: GatewayConfig) -> bool:
    path = re.sub("/+", "/", request.path)
    if request.method == "OPTIONS":
        return True
    if path == "/metrics":
        return config.public_metrics
    if not (path == "/v1" or path.startswith("/v1/")):
        return True
    listing = request.method in ("GET", "HEAD") and (path in DISCOVERY or path.startswith("/v1/models/"))
    return config.public_discovery and listing


def _presented(request: web.BaseRequest) -> str:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "api-key"):
        return value.strip()
    if "api-key" in request.headers:
        return request.headers["api-key"].strip()
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    return next((name.strip()[len(SUBPROTOCOL_KEY) :] for name in offered if SUBPROTOCOL_KEY in name), "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
