"""What commands that talk to a running server share: where it is, the key, and a sentence for each way it can fail.

Invariant: whoever uses `answer` sees a response of status 200 or a `ServerError` whose text says what to do about it.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import msgspec

from omnirt.cli.called import called

DEFAULT_URL = "http://127.0.0.1:8091"
CONNECT_S = 5.0
SILENCE_S = 120.0


class ServerError(Exception):
    """The text says what to do about it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the server (default {DEFAULT_URL}), with or without /v1")
    parser.add_argument("--key-file", help="file that holds the API key, where the server asks for one")


def base(url: str) -> str:
    """What paths are put after. Clients of the API are given it with /v1, which our paths have themselves."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


@contextlib.asynccontextmanager
async def answer(
    args: argparse.Namespace, path: str, body: bytes | aiohttp.FormData, *, pipeline: str
) -> AsyncGenerator[aiohttp.ClientResponse]:
    """POST `body`, JSON or a form; the response is there once the server has begun to answer.

    `pipeline`: what to start where no server runs."""
    url = base(args.url) + path
    headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else {}
    if args.key_file:
        headers["Authorization"] = f"Bearer {key(args.key_file)}"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            session.post(url, data=body, headers=headers) as response,
        ):
            if response.status != 200:
                raise ServerError(reason(response.status, await response.read()))
            yield response
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        start = f"{called()} run {pipeline}"
        raise ServerError(f"no server answers at {args.url}; start one with: {start}") from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ServerError(f"{args.url} is not a URL such as {DEFAULT_URL}") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ServerError("the answer broke off; the server's log says why") from error


def key(path: str) -> str:
    """The first key of a file such as the server's own. Not an argument: those show in the list of processes."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="ascii").splitlines()]
    except OSError as error:
        raise ServerError(f"cannot use {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ServerError(f"the key file {path} holds something else than keys, one a line") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ServerError(f"the key file {path} holds no key")
    return keys[0]


def reason(status: int, body: bytes) -> str:
    """The server's own words for a refusal."""
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError, KeyError):
        envelope = msgspec.json.decode(body, type=dict[str, dict[str, object]])
        return f"the server refused ({status}): {envelope['error']['message']}"
    return f"the server answered {status}; is it omnirt?"
