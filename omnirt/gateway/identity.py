"""A request's name towards clients, operators and stages: what the client sent if that is sane, else our own.

Names are for people and logs. They may repeat, so nothing is looked up by them except in the cancel call.
"""

from __future__ import annotations

import secrets

from aiohttp import web

REQUEST_ID = web.RequestKey("request_id", str)
CALLER = web.RequestKey("caller", str)
"""The label of the API key, empty without one."""
RESPONSE = web.RequestKey("response", web.StreamResponse)
"""Set once headers were sent."""
CHARS_MAX = 128


def request_id_of(presented: str | None) -> str:
    if presented and len(presented) <= CHARS_MAX and presented.isascii() and presented.isprintable():
        return presented
    return f"req_{secrets.token_hex(12)}"
