"""Pinned by version and bytes."""

import shutil
from importlib import metadata

import pytest

from omnirt.actors.models.hibari import weights
from omnirt.errors import ConfigError


def test_the_installed_files_are_the_pinned_ones():
    folder = weights.assets()
    assert weights.verified(folder / weights.ACOUSTIC).is_file()
    assert weights.verified(folder / weights.UNKNOWN_WORDS).is_file()
    assert weights.phoneme_ids(folder)[" "] == 16


def test_other_bytes_are_refused_with_the_way_out(tmp_path):
    changed = tmp_path / weights.UNKNOWN_WORDS
    shutil.copy(weights.assets() / weights.UNKNOWN_WORDS, changed)
    changed.write_bytes(changed.read_bytes()[:-1] + b"!")
    with pytest.raises(ConfigError, match=r"not the file .* pip install"):
        weights.verified(changed)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="missing"):
        weights.verified(tmp_path / weights.ACOUSTIC)


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "9.9")
    with pytest.raises(ConfigError, match=r"9\.9 is installed, the voice is pinned to"):
        weights.assets()


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ConfigError, match="pip install hibari-tts=="):
        weights.assets()


def test_the_licence_notes_list_every_pinned_hash():
    notes = (weights.Path(weights.__file__).parent / "licences.md").read_text()
    assert all(digest in notes for digest in weights.SHA256.values())
