"""Voices that were encoded before, by the content of their recordings: in memory, and in files that outlive a restart.

What always holds:
    a key is made of the samples, their rate, what was wanted of them and the checkpoint: whoever has the key has the
    recording, so nobody is given a voice whose recording he did not send;
    what is found equals what was put there, bit for bit: a file says the hash of its contents, and one that does not
    fit is passed over with a warning and written again;
    a file appears whole, by a rename, and only its owner can read it;
    memory and files are bounded in bytes; what was longest not used goes first.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.errors import ConfigError

log = logging.getLogger("omnirt.reference")
VERSION = 1
"""Goes up whenever the encoders' results change."""
SUFFIX = ".voice"
PART = ".part"
ENTRY_BYTES = 512
"""What an entry costs beside its arrays."""
ENTRY_BYTES_MAX = 16 << 20
"""A larger file is none of ours."""
DIGEST_BYTES = 32


def checkpoint_identity(folder: Path) -> str:
    """Changes when the configuration or a file of weights does. Weights are told apart by size and time of change:
    reading them would take as long as loading them."""
    found = hashlib.sha256(f"{VERSION}\n".encode())
    for part in (folder, folder / "speech_tokenizer"):
        config = part / "config.json"
        found.update(config.read_bytes() if config.is_file() else b"-")
        for path in sorted(part.glob("*.safetensors")):
            stat = path.stat()
            found.update(f"\n{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return found.hexdigest()


def voice_key(checkpoint: str, samples: np.ndarray, rate: int, with_codes: bool) -> str:
    head = f"{checkpoint}\n{rate} {samples.dtype.str} {samples.shape} {with_codes}\n"
    found = hashlib.sha256(head.encode())
    found.update(np.ascontiguousarray(samples).data)
    return found.hexdigest()


class VoiceMemory:
    """The least recently used goes when there are more bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._voices: OrderedDict[str, SpeakerVoice] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._voices)

    def get(self, key: str) -> SpeakerVoice | None:
        voice = self._voices.get(key)
        if voice is not None:
            self._voices.move_to_end(key)
        return voice

    def put(self, key: str, voice: SpeakerVoice) -> None:
        if key not in self._voices:
            self._voices[key] = voice
            self.bytes += voice.nbytes() + ENTRY_BYTES
        while self.bytes > self._bytes_max:
            _, gone = self._voices.popitem(last=False)
            self.bytes -= gone.nbytes() + ENTRY_BYTES


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A voice in a file, behind the hash of this."""

    embedding: bytes
    codes: bytes
    books: int


class VoiceFiles:
    """A folder of its own. Other processes may use it at the same time."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Raises ConfigError."""
        self.folder = folder
        self._bytes_max = bytes_max
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._bytes = sum(size for _, _, size in self._listed())
        except OSError as error:
            raise ConfigError(f"cache = {str(folder)!r}: voices cannot be kept there: {error}") from None
        for path in folder.glob(f"*{PART}"):  # of a process that was killed; a living one only writes its file again
            path.unlink(missing_ok=True)

    def get(self, key: str) -> SpeakerVoice | None:
        path = self.folder / (key + SUFFIX)
        try:
            if path.stat().st_size > ENTRY_BYTES_MAX:
                raise ValueError("too large")
            voice = _unpacked(path.read_bytes())
            os.utime(path)  # it was used
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("kept voice cannot be read: %s", error, extra={"path": str(path)})
            return None
        return voice

    def put(self, key: str, voice: SpeakerVoice) -> None:
        """What cannot be kept is only encoded again."""
        data = _packed(voice)
        try:
            descriptor, part = tempfile.mkstemp(PART, key[:8], self.folder)  # mode 0600
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(part, self.folder / (key + SUFFIX))
            except OSError:
                Path(part).unlink(missing_ok=True)
                raise
            self._bytes += len(data)
            self._make_room()
        except OSError as error:
            log.warning("voice cannot be kept: %s", error, extra={"path": str(self.folder)})

    def _make_room(self) -> None:
        if self._bytes <= self._bytes_max:
            return
        files = sorted(self._listed())
        self._bytes = sum(size for _, _, size in files)
        for _, path, size in files:
            if self._bytes <= self._bytes_max:
                break
            path.unlink(missing_ok=True)
            self._bytes -= size

    def _listed(self) -> Iterator[tuple[int, Path, int]]:
        """When it was used, where it is, its bytes."""
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                stat = path.stat()
            except FileNotFoundError:  # another process made room
                continue
            yield stat.st_mtime_ns, path, stat.st_size


class ReferenceCache:
    """Memory before files."""

    def __init__(self, memory: VoiceMemory, files: VoiceFiles | None = None) -> None:
        self._memory = memory
        self._files = files

    def get(self, key: str) -> SpeakerVoice | None:
        voice = self._memory.get(key)
        if voice is None and self._files is not None:
            voice = self._files.get(key)
            if voice is not None:
                self._memory.put(key, voice)
        return voice

    def put(self, key: str, voice: SpeakerVoice) -> None:
        self._memory.put(key, voice)
        if self._files is not None:
            self._files.put(key, voice)


def _packed(voice: SpeakerVoice) -> bytes:
    stored = _Stored(
        np.ascontiguousarray(voice.embedding, "<f4").tobytes(),
        np.ascontiguousarray(voice.codes, "<i4").tobytes(),
        voice.codes.shape[1],
    )
    body = msgspec.msgpack.encode(stored)
    return hashlib.sha256(body).digest() + body


def _unpacked(data: bytes) -> SpeakerVoice:
    digest, body = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("its contents are damaged")
    stored = msgspec.msgpack.decode(body, type=_Stored)
    codes = np.frombuffer(stored.codes, "<i4").reshape(-1, stored.books)
    return SpeakerVoice(np.frombuffer(stored.embedding, "<f4"), codes)
