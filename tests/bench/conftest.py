"""Benches are scripts: the files beside them are found by their bare names, last of all."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
