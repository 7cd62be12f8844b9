"""Taking in a recording: the parts of a form, or base64 in JSON, bounded while it arrives.

A form's file goes to disk (an unlinked file, so nothing is left whatever happens) once it is larger than `SPOOL_BYTES`;
an upload costs no memory. The other fields usually come before the file, so that a request that cannot be served is
refused before the file is read.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, cast

from aiohttp import BodyPartReader, web
from msgspec import Struct

from omnirt.gateway.audio_in import check_whole, decode_base64
from omnirt.gateway.body import check_json, read_json
from omnirt.gateway.core import Core
from omnirt.gateway.errors import invalid, too_large
from omnirt.gateway.form import FORM, parts_of, piece_of, text_of
from omnirt.gateway.holding import Holding, Share
from omnirt.gateway.recording import ACCEPTED
from omnirt.gateway.transcription_request import FIELDS, form_fields, recording_in

SPOOL_BYTES = 1 << 20
TEXT_BYTES_MAX = 64 << 10
PARTS_MAX = 256
IGNORED_BYTES_MAX = 16 << 20

Check = Callable[[object], None]
"""Given the fields so far: raises what refuses the request whatever the recording is."""


class Received(Struct, frozen=True):
    """`file`: the recording, at its beginning. `param`: the field it came in."""

    fields: dict[str, Any]
    file: BinaryIO
    param: str


class Uploads:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._disk = Holding(core.config.uploads_bytes_max, "uploaded audio")
        self._bodies = Holding(core.config.uploads_json_bytes_max, "uploaded audio")

    @asynccontextmanager
    async def receive(self, request: web.Request, check: Check) -> AsyncGenerator[Received]:
        """The recording that `request` holds, gone afterwards. Raises a 4xx."""
        if request.content_type == FORM:
            directory = self._core.config.uploads_dir or None
            with self._disk.share() as share, tempfile.SpooledTemporaryFile(SPOOL_BYTES, dir=directory) as spool:
                file = cast("BinaryIO", spool)
                yield Received(await self._read_form(request, file, share, check), file, "file")
        else:
            with self._bodies.share() as share:
                yield await self._read_json(request, share, check)

    async def _read_json(self, request: web.Request, share: Share, check: Check) -> Received:
        check_json(request, f"{FORM} or application/json")
        bytes_max = self._core.config.recording_json_bytes_max
        length = request.content_length
        share.take(bytes_max if length is None else min(length, bytes_max))  # more than that is refused unread
        body = await read_json(request, bytes_max)
        check(body)
        param = "input_audio.data"
        data = await self._core.threaded(decode_base64, recording_in(body), param)
        check_whole(data, param)
        return Received(body, io.BytesIO(data), param)

    async def _read_form(self, request: web.Request, file: BinaryIO, share: Share, check: Check) -> dict[str, Any]:
        bytes_max = self._core.config.recording_bytes_max
        if (request.content_length or 0) > bytes_max + PARTS_MAX * TEXT_BYTES_MAX:
            raise too_large(bytes_max)
        form = _Form(self._core, file, share, check)
        await form.read(request)
        return form.checked()


class _Form:
    """The parts of one request, as they arrive."""

    def __init__(self, core: Core, file: BinaryIO, share: Share, check: Check) -> None:
        self._core = core
        self._file = file
        self._share = share
        self._check = check
        self._texts: dict[str, list[str]] = {}
        self._size = -1
        """Of the recording; negative before it came."""
        self._ignored = 0

    async def read(self, request: web.Request) -> None:
        async for part in parts_of(request, PARTS_MAX):
            if part.name == "file" and self._size < 0:
                self._check(form_fields(self._texts))
                await self._take_file(part)
            elif part.name and part.name.removesuffix("[]") in FIELDS:
                self._texts.setdefault(part.name, []).append(await text_of(part, TEXT_BYTES_MAX))
            else:
                await self._skip(part)

    def checked(self) -> dict[str, Any]:
        """The fields, once all is there."""
        fields = form_fields(self._texts)
        self._check(fields)
        if self._size < 0:
            raise invalid("file is required: the recording.", "file", "missing_required_parameter")
        if self._size == 0:
            raise invalid(f"The recording in file is empty; accepted: {ACCEPTED}.", "file")
        self._file.seek(0)
        return fields

    async def _take_file(self, part: BodyPartReader) -> None:
        bytes_max = self._core.config.recording_bytes_max
        self._size = 0
        while piece := await piece_of(part):
            self._size += len(piece)
            if self._size > bytes_max:
                raise too_large(bytes_max)
            self._share.take(len(piece))
            await self._core.threaded(self._file.write, piece)

    async def _skip(self, part: BodyPartReader) -> None:
        while piece := await piece_of(part):
            self._ignored += len(piece)
            if self._ignored > IGNORED_BYTES_MAX:
                raise invalid(
                    f"Over {IGNORED_BYTES_MAX} bytes of the form are in fields that are not known here.", None
                )
