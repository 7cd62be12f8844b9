"""Compiling at start: kept code is read again, keyed by all it depends on, and never half written."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels import cuda_module  # noqa: E402
from omnirt.kernels.cuda_module import Compiler, CudaError, Kernel, Program, compile_source  # noqa: E402

PROGRAM = Program("frame_solo", ("predictor_arguments.cuh",), (("HID", 8),))


@pytest.fixture
def counted(monkeypatch):
    """Sources that were compiled, by a compiler that is not there."""
    sources = []

    def compiled(source, extra=()):
        sources.append(source)
        return f"code {len(sources)}".encode(), ""

    monkeypatch.setattr(cuda_module, "compile_source", compiled)
    monkeypatch.setattr(cuda_module, "_version", lambda: b"13.0")
    return sources


def test_a_program_is_its_definitions_and_its_files():
    lines = PROGRAM.source.splitlines()
    assert lines[0] == "#define HID 8"
    assert "struct Arguments {" in lines


def test_code_that_was_kept_is_not_compiled_again(counted, tmp_path):
    for _ in range(2):
        with Compiler(tmp_path) as compiler:
            compiler.start(PROGRAM)
            assert compiler.code(PROGRAM) == b"code 1"
    assert len(counted) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


def test_other_definitions_or_another_compiler_are_other_code(counted, tmp_path, monkeypatch):
    with Compiler(tmp_path) as compiler:
        compiler.code(PROGRAM)
        compiler.code(PROGRAM._replace(definitions=(("HID", 9),)))
    monkeypatch.setattr(cuda_module, "_version", lambda: b"13.1")
    with Compiler(tmp_path) as compiler:
        compiler.code(PROGRAM)
    assert len(counted) == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_where_nothing_may_be_written_every_start_compiles(counted, tmp_path):
    (tmp_path / "file").write_text("no folder")
    for _ in range(2):
        with Compiler(tmp_path / "file") as compiler:
            assert compiler.code(PROGRAM)
    assert len(counted) == 2


def test_a_kernel_that_wants_too_much_shared_memory_is_refused():
    with pytest.raises(CudaError, match="shared memory"):
        Kernel(b"", "large", blocks=1, threads=32, shared_bytes=1 << 20)


@pytest.mark.slow
def test_the_compiler_of_the_machine_says_what_is_wrong():
    try:
        cuda_module._nvrtc()
    except OSError:
        pytest.skip("no NVRTC here")
    code, _ = compile_source('extern "C" __global__ void one(const int a) {}')
    assert code.startswith(b"\x7fELF")
    with pytest.raises(CudaError, match="undefined"):
        compile_source('extern "C" __global__ void one(const int a) { b(); }')
