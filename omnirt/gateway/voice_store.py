"""Uploaded voices on disk: `<id>.json` beside `<id>.audio` in one directory that only the owner can enter.

Invariants: file names are made from our own ids, never from what a client sent; a record appears (by rename) only
after its audio is complete, so a crash leaves nothing but a `.part` file, which the next start removes. `begin`,
`write` and `erase` touch the disk and may run on any thread; the table (`find`, `add`, `remove`, ...) is the loop's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from omnirt.clock import unix_s
from omnirt.errors import ConfigError
from omnirt.gateway.facts import plainly

log = logging.getLogger("omnirt.gateway")
ID = re.compile(r"voice_[0-9a-f]{24}")


class StoredVoice(Struct, frozen=True):
    id: str
    name: str
    created_s: int
    type: str
    """`audio_sample` or `prompt`."""
    mime_type: str = ""
    size: int = 0
    consent: str = ""
    ref_text: str = ""
    speaker_description: str = ""
    prompt: str = ""


class Upload:
    """Audio on its way in. Discarded unless it is committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class VoiceStore:
    def __init__(self, directory: str, voices_max: int) -> None:
        self._directory = Path(directory)
        self._voices_max = voices_max
        self._voices: dict[str, StoredVoice] = {}
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._load()
        except OSError as error:
            raise ConfigError(f"cannot use {directory} for voices: {error.strerror}") from error

    def all(self) -> list[StoredVoice]:
        return sorted(self._voices.values(), key=lambda voice: (voice.created_s, voice.id))

    def find(self, name: str) -> StoredVoice | None:
        """By id, or by the name the client gave it; by how that sounds where none is spelt so."""
        voices = self._voices.values()
        exact = (voice for voice in voices if voice.name == name)
        alike = (voice for voice in voices if plainly(voice.name) == plainly(name))
        return self._voices.get(name) or next(exact, None) or next(alike, None)

    def is_full(self) -> bool:
        return len(self._voices) >= self._voices_max

    def audio_path(self, voice: StoredVoice) -> Path:
        return self._directory / f"{voice.id}.audio"

    def begin(self) -> Upload:
        return Upload(self._directory / f"{secrets.token_hex(12)}.part")

    def write(self, voice: StoredVoice, upload: Upload | None) -> StoredVoice:
        """The voice as kept, with an id and a date, on disk but not yet among the others (see `add`)."""
        kept = msgspec.structs.replace(voice, id=f"voice_{secrets.token_hex(12)}", created_s=unix_s())
        if upload is not None:
            upload.close()
            upload.path.rename(self.audio_path(kept))
        record = self.begin()
        record.write(msgspec.json.encode(kept))
        record.close()
        record.path.rename(self._directory / f"{kept.id}.json")
        return kept

    def add(self, voice: StoredVoice) -> None:
        self._voices[voice.id] = voice

    def remove(self, voice: StoredVoice) -> None:
        self._voices.pop(voice.id, None)

    def erase(self, voice: StoredVoice) -> None:
        """From the disk."""
        (self._directory / f"{voice.id}.json").unlink(missing_ok=True)
        self.audio_path(voice).unlink(missing_ok=True)

    def _load(self) -> None:
        for left in self._directory.glob("*.part"):
            left.unlink(missing_ok=True)
        for path in sorted(self._directory.glob("voice_*.json")):
            with contextlib.suppress(msgspec.DecodeError):
                voice = msgspec.json.decode(path.read_bytes(), type=StoredVoice)
                complete = voice.type == "prompt" or self.audio_path(voice).is_file()
                if ID.fullmatch(voice.id) and path.stem == voice.id and complete:
                    self._voices[voice.id] = voice
                    continue
            log.warning("a voice's record is unreadable or has no audio; left alone", extra={"file": str(path)})
