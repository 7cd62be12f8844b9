from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omnirt.shm import atomics, native


def test_a_call_with_the_wrong_arguments_is_a_type_error_not_a_crash() -> None:
    with pytest.raises(TypeError):
        atomics.load_acquire("here")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        atomics.load_acquire(1, 2)  # type: ignore[call-arg]


def test_the_compiler_is_not_imported_once_the_code_is_kept() -> None:
    code = "import sys, omnirt.runtime.node; print('numba' in sys.modules)"
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "False"


def test_the_kept_code_is_its_owners_alone() -> None:
    kept = next(path for path in atomics.kept_at() if path.exists())
    assert kept.stat().st_mode & 0o777 == 0o600


def test_another_source_is_kept_under_another_name(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("a")
    two.write_text("b")
    assert native.places((one,)) != native.places((two,))
