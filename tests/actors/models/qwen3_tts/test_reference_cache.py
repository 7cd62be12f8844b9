import logging
import os
import stat

import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts.reference_cache import (
    ENTRY_BYTES,
    ReferenceCache,
    VoiceFiles,
    VoiceMemory,
    checkpoint_identity,
    voice_key,
)
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.errors import ConfigError

MB = 1 << 20


def voice(number=0, frames=5):
    random = np.random.default_rng(number)
    return SpeakerVoice(random.random(24).astype(np.float32), random.integers(0, 2048, (frames, 16)).astype(np.int32))


def key_of(number):
    return voice_key("checkpoint", np.full(100, number, np.int16), 24_000, True)


def equal(one, other):
    return one is not None and np.array_equal(one.embedding, other.embedding) and np.array_equal(one.codes, other.codes)


def test_a_key_is_of_everything_that_a_voice_depends_on():
    samples = np.arange(100, dtype=np.int16)
    changed = samples.copy()
    changed[99] += 1
    keys = {
        voice_key("a", samples, 24_000, True),
        voice_key("b", samples, 24_000, True),
        voice_key("a", samples, 16_000, True),
        voice_key("a", samples, 24_000, False),
        voice_key("a", changed, 24_000, True),
        voice_key("a", samples[:99], 24_000, True),
        voice_key("a", samples.astype(np.float32), 24_000, True),
        voice_key("a", samples.view(np.float32), 24_000, True),
    }
    assert len(keys) == 8
    assert voice_key("a", samples.copy(), 24_000, True) in keys


def test_a_checkpoint_is_another_one_when_a_file_of_it_changes(tmp_path):
    speech = tmp_path / "speech_tokenizer"
    speech.mkdir()
    seen = {checkpoint_identity(tmp_path)}
    for path in (tmp_path / "config.json", speech / "config.json", speech / "model.safetensors"):
        path.write_text("{}")
        seen.add(checkpoint_identity(tmp_path))
    (speech / "model.safetensors").write_text("{} ")
    seen.add(checkpoint_identity(tmp_path))
    os.utime(speech / "model.safetensors", ns=(1, 1))
    seen.add(checkpoint_identity(tmp_path))
    assert len(seen) == 6
    assert checkpoint_identity(tmp_path) in seen


def test_memory_gives_back_what_was_put_there_and_nothing_else():
    memory = VoiceMemory(MB)
    for number in range(8):
        memory.put(key_of(number), voice(number))
    assert all(equal(memory.get(key_of(number)), voice(number)) for number in range(8))
    assert memory.get(key_of(9)) is None


def test_memory_is_bounded_in_bytes_and_the_least_recently_used_goes_first():
    size = voice().nbytes() + ENTRY_BYTES
    memory = VoiceMemory(3 * size)
    for number in range(3):
        memory.put(key_of(number), voice(number))
    memory.get(key_of(0))
    memory.put(key_of(3), voice(3))
    assert [memory.get(key_of(number)) is not None for number in range(4)] == [True, False, True, True]
    assert memory.bytes == 3 * size
    memory.put(key_of(3), voice(3))
    assert memory.bytes == 3 * size


def test_without_memory_nothing_is_kept():
    memory = VoiceMemory(0)
    memory.put(key_of(0), voice())
    assert (len(memory), memory.bytes) == (0, 0)


def test_files_outlive_a_restart_bit_for_bit(tmp_path):
    VoiceFiles(tmp_path / "new" / "voices", MB).put(key_of(0), voice(0))
    files = VoiceFiles(tmp_path / "new" / "voices", MB)
    found = files.get(key_of(0))
    assert equal(found, voice(0))
    assert (found.embedding.dtype, found.codes.dtype) == (np.float32, np.int32)
    assert files.get(key_of(1)) is None


def test_a_voice_without_codes_keeps_the_width_of_its_frames(tmp_path):
    files = VoiceFiles(tmp_path, MB)
    files.put(key_of(0), voice(frames=0))
    assert files.get(key_of(0)).codes.shape == (0, 16)


def test_only_the_owner_can_read_a_voice(tmp_path):
    files = VoiceFiles(tmp_path / "voices", MB)
    files.put(key_of(0), voice())
    (path,) = files.folder.iterdir()
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "folder", "huge"])
def test_a_file_that_cannot_be_read_is_passed_over_with_a_warning_and_written_again(tmp_path, caplog, damage):
    files = VoiceFiles(tmp_path, MB)
    files.put(key_of(0), voice())
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "huge":
        os.truncate(path, 1 << 40)
    else:
        path.write_bytes({"cut": data[:-3], "flipped": data, "empty": b"", "foreign": b"x" * 200}[damage])
    with caplog.at_level(logging.WARNING, "omnirt.reference"):
        assert files.get(key_of(0)) is None
    assert [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    if damage != "folder":
        files.put(key_of(0), voice())
        assert equal(files.get(key_of(0)), voice())


def test_files_are_bounded_and_what_was_longest_not_used_goes_first(tmp_path):
    VoiceFiles(tmp_path, MB).put(key_of(0), voice(0))
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size
    files = VoiceFiles(tmp_path, 3 * size)
    for number in (1, 2):
        files.put(key_of(number), voice(number))
    for age, number in enumerate((1, 2, 0)):
        os.utime(tmp_path / f"{key_of(number)}.voice", ns=(age, age))
    assert files.get(key_of(1)) is not None  # now it is the newest
    files.put(key_of(3), voice(3))
    assert [files.get(key_of(number)) is not None for number in range(4)] == [True, True, False, True]


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    (tmp_path / "abc.part").write_bytes(b"half")
    VoiceFiles(tmp_path, MB)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_mistake_in_the_options(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cache"):
        VoiceFiles(tmp_path / "file" / "voices", MB)


def test_a_full_or_vanished_disk_is_only_a_warning(tmp_path, caplog):
    files = VoiceFiles(tmp_path / "voices", MB)
    (tmp_path / "voices").rmdir()
    with caplog.at_level(logging.WARNING, "omnirt.reference"):
        files.put(key_of(0), voice())
    assert "cannot be kept" in caplog.text


def test_what_is_found_in_files_is_kept_in_memory(tmp_path):
    ReferenceCache(VoiceMemory(MB), VoiceFiles(tmp_path, MB)).put(key_of(0), voice())
    memory = VoiceMemory(MB)
    cache = ReferenceCache(memory, VoiceFiles(tmp_path, MB))
    assert cache.get(key_of(1)) is None
    assert equal(cache.get(key_of(0)), voice())
    assert len(memory) == 1
