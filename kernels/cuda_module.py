"""CUDA C++ that is compiled at start by the NVRTC library of the installed torch, and launched on torch's stream.

    with Compiler(folder) as compiler:
        compiler.start(program)                    # in a thread of its own; several at once
        kernel = Kernel(compiler.code(program), program.name, blocks=..., threads=..., shared_bytes=...)
    kernel.launch(argument)

No compiler is needed on the machine. A kernel takes one argument, a struct; it is launched cooperatively, so either all
of its blocks run at once or the launch fails: kernels whose blocks wait for each other need that.

Invariants
* kept machine code is keyed by all it depends on: source, definitions, options, NVRTC's version
* it is written whole or not at all (temporary file, rename), and read only if this user wrote it
* a module belongs to the process that loaded it; a launch is captured by a CUDA graph like any other
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

SHARED_BYTES_MAX = 232448
"""Of one block on Hopper."""
_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
_OPTIONS = (b"--gpu-architecture=sm_90a", b"--std=c++17", b"-default-device")


class CudaError(RuntimeError):
    pass


class Program(NamedTuple):
    """A kernel called `name` in files of this folder, one text; `definitions` go before it."""

    name: str
    files: tuple[str, ...]
    definitions: tuple[tuple[str, int], ...]

    @property
    def source(self) -> str:
        lines = [f"#define {name} {value}" for name, value in self.definitions]
        return "\n".join([*lines, *(Path(__file__).with_name(file).read_text() for file in self.files)])


def default_folder() -> Path:
    return Path.home() / ".cache" / "omnirt" / "cuda"


# ---------------------------------------------------------------- compiling


@cache
def _nvrtc() -> ctypes.CDLL:
    major = (torch.version.cuda or "13").split(".")[0]
    folders = [*(Path(place, "nvidia") for place in sys.path if place), Path("/usr/local/cuda")]
    for folder in folders:
        found = [*folder.glob(f"*/lib/libnvrtc.so.{major}*"), *folder.glob(f"lib*/libnvrtc.so.{major}*")]
        if found:
            for extra in found[0].parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(extra), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(found[0]))
    return ctypes.CDLL(f"libnvrtc.so.{major}")


def _version() -> bytes:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}".encode()


def compile_source(source: str, extra: tuple[bytes, ...] = ()) -> tuple[bytes, str]:
    """Machine code for Hopper, and what the compiler said."""
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        options = [*_OPTIONS, *extra]
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        nvrtc.nvrtcGetProgramLog(program, log)
        if status:
            raise CudaError(log.value.decode())
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, code)
        return code.raw, log.value.decode()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


class Compiler:
    """Machine code of programs, each compiled once; `folder` keeps it for later starts."""

    def __init__(self, folder: Path | None = None, threads: int = 8) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(threads)
        self._jobs: dict[Program, Future[bytes]] = {}

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, program: Program) -> None:
        if program not in self._jobs:
            self._jobs[program] = self._pool.submit(self._made, program)

    def code(self, program: Program) -> bytes:
        """Waits for it."""
        self.start(program)
        return self._jobs[program].result()

    def _made(self, program: Program) -> bytes:
        source = program.source
        if self._folder is None:
            return compile_source(source)[0]
        key = hashlib.sha256(b"\0".join([source.encode(), *_OPTIONS, _version()])).hexdigest()[:24]
        path = self._folder / f"{program.name}-{key}.cubin"
        return _kept(path) or _keep(path, compile_source(source)[0])


def _kept(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        if path.stat().st_uid == os.geteuid():
            return path.read_bytes()
    return None


def _keep(path: Path, code: bytes) -> bytes:
    """Where nothing may be written, every start compiles."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        os.rename(temporary, path)
    return code


# ---------------------------------------------------------------- launching


class Kernel:
    """One kernel, loaded, with its launch shape."""

    def __init__(self, code: bytes, name: str, *, blocks: int, threads: int, shared_bytes: int) -> None:
        if shared_bytes > SHARED_BYTES_MAX:
            raise CudaError(f"{name} needs {shared_bytes} bytes of shared memory; a block has {SHARED_BYTES_MAX}")
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._blocks, self._threads, self._shared_bytes = blocks, threads, shared_bytes
        torch.cuda.current_stream().synchronize()  # makes torch's context the current one
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), code))
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()))
        self._check(self._driver.cuFuncSetAttribute(self._function, _MAX_DYNAMIC_SHARED, shared_bytes))

    def launch(self, argument: ctypes.Structure) -> None:
        """The argument is copied; what it points to must stay where it is while a graph that captured this is used."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        values = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        one = ctypes.c_uint(1)
        grid, block = (ctypes.c_uint(self._blocks), one, one), (ctypes.c_uint(self._threads), one, one)
        shared = ctypes.c_uint(self._shared_bytes)
        status = self._driver.cuLaunchCooperativeKernel(self._function, *grid, *block, shared, stream, values)
        self._check(status)

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise CudaError(f"CUDA driver error {status}")
