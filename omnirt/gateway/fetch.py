"""Media that a request refers to by URL: the one place that follows references, and the guard of the inner network.

    data:   decoded
    http(s) every hop: name resolved once, all of its addresses public, connection made to those addresses
    file:   only below a directory that the operator allowed

Invariants: no connection is made to an address that was not checked, so neither a redirect nor a name that resolves
otherwise the second time leads inside; what is read is bounded in size and time; a refusal says nothing of what is
there (a file outside the allowed directories is refused the same whether it exists or not).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from omnirt.gateway.audio_in import decode_base64
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError, Refusal, invalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host, port -> addresses."""

REDIRECTS_MAX = 5
REDIRECTS = (301, 302, 303, 307, 308)
URL_CHARS_MAX = 8192
"""Of http and file references."""
PIECE_BYTES = 64 << 10
NAT64 = ipaddress.ip_network("64:ff9b::/96")
SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "5f00::/16")))
"""Not of the open internet, whatever the standard library of this version says."""
PRIVATE = "; `omnirt run --private-media` fetches from such, too"
FILES = "; those below DIR it does with `omnirt run --media DIR`"
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "omnirt"}


async def fetch(core: Core, url: str, param: str, lookup: Lookup | None = None) -> bytes:
    """What `url` stands for. Raises a 400 that names `param`, or a 403 for what is never fetched."""
    scheme = url[:16].partition(":")[0].strip().lower()
    if scheme == "data":
        return await core.threaded(_data, url, param, core.config.media_bytes_max)
    if len(url) > URL_CHARS_MAX:
        raise invalid(f"{param} is a URL of {len(url)} characters; the limit is {URL_CHARS_MAX}.", param)
    if scheme == "file":
        return await core.threaded(_file, url, param, core.config)
    if scheme not in ("http", "https"):
        raise invalid(f"{param} must be a data:, http: or https: URL.", param)
    return await Fetcher(core.config, param, lookup or look_up).get(url)


def is_public(address: Address) -> bool:
    """Whether it is an address of the open internet, also where one address wraps another."""
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if wrapped is None and address in NAT64:
            wrapped = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if wrapped is not None:
            return is_public(wrapped)
    special = address.is_multicast or address.is_reserved or any(address in network for network in SPECIAL)
    return address.is_global and not special


async def look_up(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Fetcher:
    """One reference: its hops, each checked."""

    def __init__(self, config: GatewayConfig, param: str, lookup: Lookup) -> None:
        self._config = config
        self._param = param
        self._lookup = lookup

    async def get(self, url: str) -> bytes:
        try:
            async with asyncio.timeout(self._config.media_fetch_s):
                return await self._follow(url)
        except TimeoutError:
            raise self._invalid(f"did not arrive within {self._config.media_fetch_s:g} s") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._invalid("has a certificate that is not valid") from error
        except (aiohttp.ClientConnectionError, OSError) as error:
            raise self._invalid("cannot be reached") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise self._invalid(f"cannot be fetched ({type(error).__name__})") from error

    async def _follow(self, url: str) -> bytes:
        here = self._parsed(url)
        for _ in range(REDIRECTS_MAX + 1):
            addresses = await self._checked(here)
            connector = aiohttp.TCPConnector(resolver=_Known(addresses), use_dns_cache=False, force_close=True, limit=1)
            async with (
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
                ) as session,
                session.get(here, headers=HEADERS, allow_redirects=False) as answer,
            ):
                if answer.status not in REDIRECTS:
                    return await self._body(answer)
                target = answer.headers.get("Location", "")
            here = self._parsed(str(here.join(URL(target))) if target else "")
        raise self._invalid(f"redirects more than {REDIRECTS_MAX} times")

    def _parsed(self, url: str) -> URL:
        try:
            parsed = URL(url.strip())
            port = parsed.port
        except ValueError as error:
            raise self._invalid("is not a valid URL") from error
        if parsed.scheme not in ("http", "https") or not parsed.host or not port:
            raise self._invalid("leads to what is not a http or https URL")
        return parsed

    async def _checked(self, url: URL) -> list[str]:
        """The addresses to connect to. Raises a 403 if one of them is not public."""
        host, port = url.host or "", url.port or 0
        try:
            found = [str(ipaddress.ip_address(host.partition("%")[0]))]
        except ValueError:
            found = await self._found(host, port)
        for text in found:
            try:
                allowed = self._config.allow_private_media or is_public(ipaddress.ip_address(text.partition("%")[0]))
            except ValueError:
                allowed = False
            if not allowed:
                raise _forbidden(f"{self._param} leads to an address that is not public{PRIVATE}.", self._param)
        return found

    async def _found(self, host: str, port: int) -> list[str]:
        try:
            found = list(await self._lookup(host, port))
        except (OSError, UnicodeError) as error:
            raise self._invalid("names a host that cannot be found") from error
        if not found:
            raise self._invalid("names a host that cannot be found")
        return found

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        if answer.status != 200:
            raise self._invalid(f"was answered with status {answer.status}")
        coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise self._invalid("was answered compressed, which was not asked for")
        bytes_max = self._config.media_bytes_max
        if (answer.content_length or 0) > bytes_max:
            raise self._invalid(f"is over the limit of {bytes_max} bytes")
        body = bytearray()
        async for piece in answer.content.iter_chunked(PIECE_BYTES):
            body += piece
            if len(body) > bytes_max:
                raise self._invalid(f"is over the limit of {bytes_max} bytes")
        return bytes(body)

    def _invalid(self, what: str) -> ApiError:
        return invalid(f"The URL in {self._param} {what}.", self._param)


class _Known(AbstractResolver):
    """Gives the addresses that were checked: the connection asks nobody again."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None: ...


def _forbidden(message: str, param: str) -> ApiError:
    return ApiError(Refusal(403, "forbidden", message, type="permission_error", param=param))


def _data(url: str, param: str, bytes_max: int) -> bytes:
    """The content of a data URL."""
    head, comma, body = url.partition(",")
    if not comma:
        raise invalid(f"{param} is a data URL without data.", param)
    if len(body) > bytes_max * 3:
        raise invalid(f"{param} is over the limit of {bytes_max} bytes.", param)
    if head.rstrip().lower().endswith(";base64"):
        data = decode_base64(unquote(body) if "%" in body else body, param)
    else:
        data = unquote_to_bytes(body)
    if len(data) > bytes_max:
        raise invalid(f"{param} is over the limit of {bytes_max} bytes.", param)
    return data


def _file(url: str, param: str, config: GatewayConfig) -> bytes:
    """A regular file below an allowed directory, links resolved."""
    parts = urlsplit(url)
    refusal = _forbidden(f"{param} refers to a file that this server does not give out{FILES}.", param)
    try:
        path = Path(unquote(parts.path)).resolve()
        roots = [Path(root).resolve() for root in config.media_roots]
        inside = any(path.is_relative_to(root) for root in roots)
        if parts.netloc not in ("", "localhost") or not inside or not path.is_file():
            raise refusal
        with path.open("rb") as file:
            data = file.read(config.media_bytes_max + 1)
    except (OSError, ValueError) as error:
        raise refusal from error
    if len(data) > config.media_bytes_max:
        raise invalid(f"The file in {param} is over the limit of {config.media_bytes_max} bytes.", param)
    return data
