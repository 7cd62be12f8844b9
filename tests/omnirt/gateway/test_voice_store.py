"""Voices on disk."""

import os
import stat

import pytest

from omnirt.errors import ConfigError
from omnirt.gateway.voice_store import StoredVoice, VoiceStore

SAMPLE = StoredVoice("", "Ann", 0, "audio_sample", "audio/wav", 4, "cons_1")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "a" / "voices"


def keep(store, voice=SAMPLE, audio=b"RIFF"):
    upload = store.begin()
    upload.write(audio)
    kept = store.write(voice, upload)
    store.add(kept)
    return kept


def test_a_voice_is_found_by_id_and_by_name_and_survives_a_restart(directory):
    store = VoiceStore(str(directory), 10)
    kept = keep(store)
    assert kept.id.startswith("voice_")
    assert kept.created_s > 1_600_000_000
    for found in (store, VoiceStore(str(directory), 10)):
        assert found.find("Ann") == found.find(kept.id) == kept
        assert found.audio_path(kept).read_bytes() == b"RIFF"
        assert found.all() == [kept]


def test_a_voice_is_found_however_it_is_spelt_and_first_as_it_is(directory):
    store = VoiceStore(str(directory), 10)
    kept = keep(store)
    assert store.find("ann") == store.find("ANN") == kept
    other = keep(store, StoredVoice("", "ann", 0, "audio_sample"))
    assert (store.find("ann"), store.find("Ann")) == (other, kept)
    assert store.find("anna") is None


def test_only_the_owner_can_look(directory):
    store = VoiceStore(str(directory), 10)
    keep(store)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_deleting_leaves_nothing(directory):
    store = VoiceStore(str(directory), 10)
    kept = keep(store)
    store.remove(kept)
    store.erase(kept)
    assert store.find("Ann") is None
    assert list(directory.iterdir()) == []


def test_a_discarded_upload_leaves_nothing(directory):
    store = VoiceStore(str(directory), 10)
    upload = store.begin()
    upload.write(b"x")
    upload.discard()
    upload.discard()
    assert list(directory.iterdir()) == []


def test_what_a_crash_left_is_removed_at_the_next_start(directory):
    store = VoiceStore(str(directory), 10)
    store.begin().write(b"half")
    assert len(list(directory.iterdir())) == 1
    VoiceStore(str(directory), 10)
    assert list(directory.iterdir()) == []


def test_records_that_are_not_ours_are_left_alone(directory):
    store = VoiceStore(str(directory), 10)
    kept = keep(store)
    (directory / "voice_bad.json").write_text("{")
    (directory / "voice_odd.json").write_text('{"id":"../../x","name":"x","created_s":1,"type":"prompt"}')
    (directory / "notes.txt").write_text("mine")
    store.audio_path(keep(store)).unlink()
    assert VoiceStore(str(directory), 10).all() == [kept]
    assert (directory / "notes.txt").exists()


def test_a_described_voice_needs_no_audio(directory):
    kept = VoiceStore(str(directory), 10).write(StoredVoice("", "Bo", 0, "prompt", prompt="deep"), None)
    assert VoiceStore(str(directory), 10).find("Bo") == kept


def test_the_number_of_voices_is_bounded(directory):
    store = VoiceStore(str(directory), 1)
    assert not store.is_full()
    keep(store)
    assert store.is_full()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_used_is_a_configuration_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError):
        VoiceStore(str(tmp_path / "voices"), 10)


def test_a_file_in_its_place_is_a_configuration_error(tmp_path):
    (tmp_path / "voices").write_text("")
    with pytest.raises(ConfigError):
        VoiceStore(str(tmp_path / "voices"), 10)
