"""CUDA C++ that is compiled at start by the NVRTC library of the installed torch, and launched on torch's stream.

No compiler is needed on the machine. A kernel takes one argument, a struct; it is launched cooperatively, so either all
of its blocks run at once or the launch fails: kernels whose blocks wait for each other need that.

Invariants: a module belongs to the process that compiled it; a launch is captured by a CUDA graph like any other.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

SHARED_BYTES_MAX = 232448
"""Of one block on Hopper."""
_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""


class CudaError(RuntimeError):
    pass


def _nvrtc() -> ctypes.CDLL:
    major = (torch.version.cuda or "13").split(".")[0]
    roots = [str(Path(torch.__file__).parents[1] / "nvidia"), "/usr/local/cuda/lib64"]
    for root in roots:
        found = sorted(glob.glob(f"{root}/**/libnvrtc.so.{major}*", recursive=True))
        if found:
            for extra in glob.glob(os.path.join(os.path.dirname(found[0]), "libnvrtc-builtins.so*")):
                ctypes.CDLL(extra, mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(found[0])
    return ctypes.CDLL(f"libnvrtc.so.{major}")


def compile_source(source: str, names: Mapping[str, int]) -> bytes:
    """`names` become preprocessor definitions. Returns machine code for Hopper."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    text = "".join(f"#define {name} {value}\n" for name, value in names.items()) + source
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17", b"-default-device"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CudaError(log.value.decode())
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


class Kernel:
    """One kernel of a module, with its launch shape."""

    def __init__(self, sources: Sequence[Path], name: str, names: Mapping[str, int], *, blocks: int, threads: int,
                 shared_bytes: int, cooperative: bool = True) -> None:
        if shared_bytes > SHARED_BYTES_MAX:
            raise CudaError(f"{name} needs {shared_bytes} bytes of shared memory; a block has {SHARED_BYTES_MAX}")
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._cooperative = cooperative
        self._blocks, self._threads, self._shared_bytes = blocks, threads, shared_bytes
        self._code = compile_source("\n".join(path.read_text() for path in sources), names)
        torch.cuda.current_stream().synchronize()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), self._code))
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()))
        self._check(self._driver.cuFuncSetAttribute(self._function, _MAX_DYNAMIC_SHARED, shared_bytes))

    def launch(self, argument: ctypes.Structure) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        values = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        one = ctypes.c_uint(1)
        launch = self._driver.cuLaunchCooperativeKernel if self._cooperative else self._driver.cuLaunchKernel
        last = () if self._cooperative else (None,)
        self._check(launch(
            self._function, ctypes.c_uint(self._blocks), one, one, ctypes.c_uint(self._threads), one, one,
            ctypes.c_uint(self._shared_bytes), stream, values, *last))

    def clusters_at_once(self, blocks_a_cluster: int) -> int:
        """How many clusters the device can hold of this kernel."""

        class Attribute(ctypes.Structure):
            _fields_ = [("kind", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]

        class Config(ctypes.Structure):
            _fields_ = [("sizes", ctypes.c_uint * 6), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                        ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]

        attribute = Attribute(4, 0, (ctypes.c_uint * 16)(blocks_a_cluster, 1, 1))
        config = Config((ctypes.c_uint * 6)(self._blocks, 1, 1, self._threads, 1, 1), self._shared_bytes, None,
                        ctypes.addressof(attribute), 1)
        count = ctypes.c_int()
        self._check(self._driver.cuOccupancyMaxActiveClusters(ctypes.byref(count), self._function, ctypes.byref(config)))
        return count.value

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise CudaError(f"CUDA driver error {status}")
