# pyright: basic
"""Compiled operations without their compiler: numba makes machine code once, llvmlite maps it at every start.

    first start   operations.py -(numba)-> LLVM -> one object file, kept beside this file or in the user's cache
    later starts  object file -(llvmlite)-> functions of this process

Importing numba costs each process more than a second and 65 MB, which mapping the object does not. The functions are
plain built-in functions of integers (METH_FASTCALL), cheaper to call than numba's own entry points.

Invariants
* the object is keyed by everything it depends on: source, numba's and LLVM's version, processor, Python's version
* it is written whole or not at all (temporary file, rename), readable by its owner only
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from omnirt.errors import OmnirtError

Function = Callable[..., Any]

_METH_FASTCALL = 0x80
_API = (
    "PyLong_AsLongLong", "PyLong_FromLongLong", "PyErr_BadArgument", "PyErr_Occurred", "PyEval_SaveThread",
    "PyEval_RestoreThread",
)  # fmt: skip
_PREFIX = "omnirt_"

_I64 = ir.IntType(64)
_PTR = ir.IntType(8).as_pointer()


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


Build = Callable[[], Mapping[str, tuple[Any, bool]]]
"""For each name a numba function of integers, and whether it runs without the GIL."""


def load(sources: tuple[Path, ...], build: Build, names: tuple[str, ...]) -> dict[str, Function]:
    """The functions called `names`. `build` is only called when no object of `sources` on this machine is kept."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    # Static: addresses are written into the code. What is far away (the interpreter) needs the large model.
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="static", codemodel="large", jit=True
    )
    where = places(sources)
    code = _kept(where) or _keep(where, _compile(build(), machine))
    for name in _API:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    functions = {name: _function(name, engine.get_function_address(_PREFIX + name)) for name in names}
    _alive.append(engine)
    return functions


_alive: list[Any] = []
"""What the functions point into; never freed."""


def _function(name: str, address: int) -> Function:
    if not address:
        raise OmnirtError(f"the native code that was kept has no {name}; remove omnirt's __pycache__ folders")
    method = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    _alive.append(method)
    new = ctypes.pythonapi.PyCMethod_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p] * 4
    return new(ctypes.addressof(method), None, None, None)


# ---------------------------------------------------------------- compiling


def _compile(functions: Mapping[str, tuple[Any, bool]], machine: Any) -> bytes:
    """One object file with a Python function around each of the numba functions."""
    linked = llvm.parse_assembly(str(_wrappers(functions)))
    for dispatcher, _ in functions.values():
        linked.link_in(llvm.parse_assembly(_overload(dispatcher).library.get_llvm_str()))
    linked.verify()
    outside = {function.name for function in linked.functions if function.is_declaration} - {*_API, "memcpy"}
    assert all(name.startswith("llvm.") for name in outside), f"the native code needs {sorted(outside)}"
    return machine.emit_object(linked)


def _wrappers(functions: Mapping[str, tuple[Any, bool]]) -> ir.Module:
    module = ir.Module("omnirt")
    module.triple = llvm.get_process_triple()
    api = {
        "PyLong_AsLongLong": ir.FunctionType(_I64, [_PTR]),
        "PyLong_FromLongLong": ir.FunctionType(_PTR, [_I64]),
        "PyErr_BadArgument": ir.FunctionType(ir.IntType(32), []),
        "PyErr_Occurred": ir.FunctionType(_PTR, []),
        "PyEval_SaveThread": ir.FunctionType(_PTR, []),
        "PyEval_RestoreThread": ir.FunctionType(ir.VoidType(), [_PTR]),
    }
    calls = {name: ir.Function(module, kind, name) for name, kind in api.items()}
    for name, (dispatcher, without_gil) in functions.items():
        _wrap(module, calls, name, _overload(dispatcher), without_gil)
    return module


def _overload(dispatcher: Any) -> Any:
    """The one compiled version of a function with an explicit signature."""
    (overload,) = dispatcher.overloads.values()
    return overload


def _wrap(module: ir.Module, calls: dict[str, ir.Function], name: str, overload: Any, without_gil: bool) -> None:
    """`PyObject *name(self, args, count)`: unpack, call, pack. Nothing returned is given as 0.

    numba's own functions are `status f(*result, *raised, arguments...)`; ours raise nothing, so the status is not read.
    """
    count = len(overload.signature.args)
    kind = ir.FunctionType(ir.IntType(32), [_I64.as_pointer(), _PTR.as_pointer(), *([_I64] * count)])
    inner = ir.Function(module, kind, overload.fndesc.llvm_func_name)
    outer = ir.Function(module, ir.FunctionType(_PTR, [_PTR, _PTR.as_pointer(), _I64]), _PREFIX + name)
    builder = ir.IRBuilder(outer.append_basic_block())
    null = ir.Constant(_PTR, None)
    result, raised_by_inner = builder.alloca(_I64), builder.alloca(_PTR)
    builder.store(_I64(0), result)
    with builder.if_then(builder.icmp_signed("!=", outer.args[2], _I64(count)), likely=False):
        builder.call(calls["PyErr_BadArgument"], [])
        builder.ret(null)
    values = [
        builder.call(calls["PyLong_AsLongLong"], [builder.load(builder.gep(outer.args[1], [_I64(index)]))])
        for index in range(count)
    ]
    for value in values:
        with builder.if_then(builder.icmp_signed("==", value, _I64(-1)), likely=False):
            raised = builder.call(calls["PyErr_Occurred"], [])
            with builder.if_then(builder.icmp_unsigned("!=", raised, null), likely=False):
                builder.ret(null)
    thread = builder.call(calls["PyEval_SaveThread"], []) if without_gil else None
    builder.call(inner, [result, raised_by_inner, *values])
    if thread is not None:
        builder.call(calls["PyEval_RestoreThread"], [thread])
    builder.ret(builder.call(calls["PyLong_FromLongLong"], [builder.load(result)]))


# ---------------------------------------------------------------- keeping


def _key(sources: tuple[Path, ...]) -> str:
    """numba's version counts through llvmlite's: the two are released in pairs."""
    parts = [
        *(source.read_bytes() for source in (*sources, Path(__file__))),
        llvmlite.__version__.encode(),
        sys.version.encode(),
        llvm.get_host_cpu_name().encode(),
        llvm.get_host_cpu_features().flatten().encode(),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def places(sources: tuple[Path, ...]) -> tuple[Path, Path]:
    """Beside this file, else in the user's cache."""
    name = f"native-{_key(sources)}.o"
    return Path(__file__).parent / "__pycache__" / name, Path.home() / ".cache" / "omnirt" / name


def _kept(where: tuple[Path, ...]) -> bytes | None:
    for path in where:
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.geteuid():
                return path.read_bytes()
    return None


def _keep(where: tuple[Path, ...], code: bytes) -> bytes:
    """Where nothing may be written, every start compiles."""
    for path in where:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(code)
            os.rename(temporary, path)
            break
    return code
