"""A model's own repository on the hub: from the local cache, or from the hub itself when it answers at once.

Only files of the checkpoint layout are taken (configuration, tokenizer, safetensors, or the `model.bin` of a
CTranslate2 folder); nothing that could hold code.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROBE_S = 2.0
"""A hub that needs longer to say a repository's revision is taken for unreachable."""
_FILES = ["*.json", "*.jinja", "*.txt", "*.safetensors", "model.bin"]


class Unavailable(Exception):
    """This source cannot be had here and now; another one may."""


class Unreachable(Unavailable):
    """The hub gives no answer at all."""


def from_hub(repository: str, report: Callable[[str], None]) -> tuple[Path, str]:
    """The folder, and how it was had. Raises Unavailable."""
    try:
        import huggingface_hub as hub
        from huggingface_hub import utils
    except ImportError as error:
        raise Unavailable("the package huggingface-hub is not installed") from error
    utils.disable_progress_bars()
    folder = _in_cache(hub, repository)
    if folder is not None:
        return folder, "the hub's local cache"
    revision = _revision(hub, repository)
    report(f"fetching {repository} from the hub")
    try:
        folder = Path(hub.snapshot_download(repository, revision=revision, allow_patterns=_FILES))
    except Exception as error:  # whatever its transport raises; it all means the same here
        raise Unavailable(f"the hub broke off: {_said(error)}") from error
    if not is_complete(folder):
        raise Unavailable("the repository holds no config.json with safetensors or model.bin")
    return folder, "the hub"


def is_complete(folder: Path) -> bool:
    """Whether it has what a model is loaded from; a download that broke off has not."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        import json

        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return all((folder / name).is_file() for name in names)
    return (folder / "model.safetensors").is_file() or (folder / "model.bin").is_file()


def _in_cache(hub: Any, repository: str) -> Path | None:
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True, allow_patterns=_FILES))
    except (OSError, ValueError):  # not there, or no name of a repository
        return None
    return folder if is_complete(folder) else None


def _revision(hub: Any, repository: str) -> str:
    """What the hub has now. The client's own time-out counts each of its steps, so the whole is timed here."""
    answers: queue.Queue[Any] = queue.Queue(maxsize=1)

    def ask() -> None:
        try:
            answers.put(hub.HfApi().model_info(repository, timeout=PROBE_S).sha)
        except Exception as error:  # noqa: BLE001 - as above
            answers.put(error)

    threading.Thread(target=ask, name="hub-probe", daemon=True).start()
    try:
        answer = answers.get(timeout=PROBE_S)
    except queue.Empty:
        raise Unreachable(f"the hub did not answer within {PROBE_S:g} s") from None
    if not isinstance(answer, str):
        kind = Unreachable if getattr(answer, "response", None) is None else Unavailable
        raise kind(f"the hub cannot be asked: {_said(answer)}")
    return answer


def _said(error: object) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
