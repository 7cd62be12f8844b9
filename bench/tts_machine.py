"""What a bench ran on: the machine, the versions, the commit; and how much memory of a GPU is taken."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "aiohttp", "uvloop", "omnirt")
COMMAND_LIMIT_S = 30


def machine(device: str) -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "gpu": _gpu(device),
        "cuda": _cuda(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _output("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty") or "unknown",
    }


def gpu_mib(device: str) -> float | None:
    """Memory in use on a GPU by everyone, MiB; None where there is none to ask about."""
    text = _query(device, "memory.used")
    return float(text) if text else None


def _gpu(device: str) -> dict[str, str] | None:
    text = _query(device, "name,driver_version,memory.total")
    if not text:
        return None
    name, driver, total = (part.strip() for part in text.split(","))
    return {"name": name, "driver": driver, "memory_mib": total}


def _query(device: str, what: str) -> str:
    if not device.startswith("cuda"):
        return ""
    index = device.partition(":")[2] or "0"
    return _output("nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", "-i", index)


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _cuda() -> str:
    """What torch was built for, without importing it: that takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    found = re.search(r"^cuda.*= '([\d.]+)'", (Path(spec.origin).parent / "version.py").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
