"""The parts of a form as they arrive: bounded in number, in time and, where they are text, in size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from aiohttp import BodyPartReader, web

from omnirt.gateway import body
from omnirt.gateway.errors import invalid

FORM = "multipart/form-data"
PIECE_BYTES = 256 << 10
TEXT_PIECE_BYTES = 8 << 10
T = TypeVar("T")


async def parts_of(request: web.Request, parts_max: int) -> AsyncIterator[BodyPartReader]:
    """Each is to be read, or released, before the next. Raises 400 or 408."""
    reader = await _read(request.multipart())
    taken = 0
    while (part := await _read(reader.next())) is not None:
        taken += 1
        if taken > parts_max:
            raise invalid(f"The form has more than {parts_max} parts.", None)
        if not isinstance(part, BodyPartReader):
            raise invalid("Nested forms are not supported.", None)
        yield part


async def piece_of(part: BodyPartReader) -> bytes:
    """Empty at the end."""
    return bytes(await _read(part.read_chunk(PIECE_BYTES)))


async def text_of(part: BodyPartReader, bytes_max: int) -> str:
    data = bytearray()
    while piece := await _read(part.read_chunk(TEXT_PIECE_BYTES)):
        data += piece
        if len(data) > bytes_max:
            raise invalid(f"{part.name} is over {bytes_max} bytes.", part.name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(f"{part.name} is not UTF-8.", part.name) from error


async def _read(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(body.SILENCE_S):
            return await work
    except TimeoutError:
        raise body.stopped() from None
    except ValueError as error:
        raise invalid(f"The form is malformed: {error}.", None) from error
