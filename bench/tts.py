"""Speech servers of codec-frame models under load: throughput, first packet, what a player hears; beside the floors.

    python bench/tts.py PIPELINE|CHECKPOINT_FOLDER [--http] [--engine] [--device cuda:0|cpu] [--json FILE]
                        [--concurrency 1,8,16,64] [--rates 1,10,20,50,100] [--frames 125] [--open-frames 50]
                        [--unread 63] [--reference FILE.wav --ref-text TEXT] [--deploy OVERLAY] [--set KEY=VALUE]

--http (what is done when nothing is named) starts `omnirt run` and measures, each after a round that is not counted:
    closed loop     C askers, --repetitions of 4 C requests (12 at least), medians; 0 leaves the part out, as below
    open loop       Poisson arrivals, each counted from when it was due; 10 s, longer at low rates
    unread          the largest C less one, beside a listener that stops reading after its first packet and without it,
                    in turn (with it all rows are taken: one asker more would wait for a whole answer each time)
    cold            with --reference: one asker, a recording with each request that was never heard before
--engine drives the talker's engine and the streaming decoder alone, in a process of its own, without the runtime: first
packets, time of a frame in each bucket, of decoder calls, of prefill. The two share no GPU memory: one ends, then the
other begins. Lengths are forced (ignore_eos). Clients are processes of their own; the busiest one's share of a core is
in the table, and at 100 % it is the client that was measured. Figures are explained in tts_figures.py, floors in
tts_floor.py.

Runs from a checkout without being installed, with the packages of pyproject.toml (numba, llvmlite, numpy, msgspec,
posix-ipc, uvloop, aiohttp, prometheus-client), torch and triton, where a folder of unpacked wheels is on the path:

    python3 -m pip install --no-index --no-deps --target SITE wheels/*.whl
    PYTHONPATH=SITE:. python3 bench/tts.py CHECKPOINT --http --engine --json tts.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tts_ask import FRAME_S, PROMPT, TEXTS, Asking
from tts_engine_tables import engine_tables
from tts_figures import CLOSED, OPEN, Column, table
from tts_floor import Floor, floor_for
from tts_goals import verdicts
from tts_http import Extent, Serving, closed_levels, cold_reference, offered, read_ahead, serving
from tts_load import Askers
from tts_machine import gpu_mib, machine

from omnirt.errors import OmnirtError
from omnirt.loader import resolve
from omnirt.pipeline.checkpoint import is_checkpoint
from omnirt.pipeline.deploy import load_plan
from omnirt.wire.plan import Plan

ENGINE_LIMIT_S = 1200


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("pipeline", metavar="PIPELINE", help="a pipeline, or a checkpoint's folder")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--device", default="", help="where every node runs; else as the pipeline says")
    parser.add_argument("--deploy", action="append", default=[], metavar="OVERLAY")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--concurrency", type=_counts, default=[1, 8, 16, 64])
    parser.add_argument("--rates", type=_rates, default=[1.0, 10.0, 20.0, 50.0, 100.0])
    parser.add_argument("--frames", type=int, default=125, help="of each answer (default 125: 10 s)")
    parser.add_argument("--open-frames", type=int, default=50, help="the same in the open loop (default 50: 4 s)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--each", type=int, default=4, help="requests of each asker in a repetition")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each rate, at least")
    parser.add_argument("--seconds-max", type=float, default=30.0, help="of each rate, to get to 100 requests")
    parser.add_argument(
        "--unread", type=int, default=-1, metavar="C", help="default: the largest of --concurrency, less 1"
    )
    parser.add_argument("--unread-frames", type=int, default=1000, help="of the listener that does not read")
    parser.add_argument("--reference", default="", metavar="FILE", help="a recording to be copied; - makes a hum")
    parser.add_argument("--ref-text", default="A few words were spoken here.")
    parser.add_argument("--clients", type=int, default=0, help="client processes (default: a quarter of the cores)")
    parser.add_argument("--starts", type=int, default=1, help="of the server; the last one is measured")
    parser.add_argument("--voice", default="")
    parser.add_argument("--language", default="English")
    parser.add_argument("--text", default="", help="to be spoken by every request, in place of eight sentences")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--label", default="", help="kept with the settings, such as what is being tried")
    parser.add_argument("--json", metavar="FILE", help="every figure, repetition and setting")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parsed(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        sets = [*args.sets, *placed(args)]
        plan = load_plan(args.pipeline, args.deploy, sets)
    except OmnirtError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    device = args.device or next((node.device for node in plan.nodes if node.device != "cpu"), "cpu")
    document: dict[str, Any] = {"settings": settings_of(args, plan), "machine": machine(device)}
    floor = floor_for(args.pipeline, device)
    print(headline(args, document))
    if args.engine:
        document["engine"] = engine_part(args, sets, device)
    if args.http or not args.engine:
        http_part(args, sets, device, floor, document)
    if floor is not None:
        print("\n" + "\n".join(verdicts(document, is_clone=bool(args.reference))))
    if args.json:
        Path(args.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if not errors_of(document) else 1


def placed(args: argparse.Namespace) -> list[str]:
    """What puts every node of the pipeline on the device that was asked for."""
    if not args.device:
        return []
    plan = load_plan(args.pipeline, args.deploy, args.sets)
    return [f"node.{group}.device={args.device}" for group in dict.fromkeys(node.group for node in plan.nodes)]


# ------------------------------------------------------------------- parts


def http_part(
    args: argparse.Namespace, sets: list[str], device: str, floor: Floor | None, document: dict[str, Any]
) -> None:
    options = [part for overlay in args.deploy for part in ("--deploy", overlay)]
    options += [part for value in sets for part in ("--set", value)]
    weights_gb = read_ahead(Path(args.pipeline)) if is_checkpoint(args.pipeline) else 0.0
    empty_mib = gpu_mib(device)
    ready_s: list[float] = []
    for _ in range(args.starts - 1):
        with serving(args.pipeline, options) as (_, took_s):
            ready_s.append(took_s)
    with serving(args.pipeline, options) as (running, took_s), Askers(args.clients or clients()) as askers:
        ready_s.append(took_s)
        asking, extent = asking_for(args, offered(running.url), running.url), extent_of(args)
        load = Serving(running, askers, asking, extent, device)
        document["server"] = {
            "starts_s": ready_s, "ready_s": took_s, "weights_gb": weights_gb, "asking": msgspec.to_builtins(asking),
            "gpu_mib_before": empty_mib, "gpu_mib_ready": gpu_mib(device),
        }  # fmt: skip
        levels(args, load, floor, document)
        after_mib = gpu_mib(device)
    if after_mib is not None and empty_mib is not None:
        document["server"]["gpu_mib"] = after_mib - empty_mib
    print_server(document["server"])


def levels(args: argparse.Namespace, load: Serving, floor: Floor | None, document: dict[str, Any]) -> None:
    """Each part is printed when it is done."""
    if args.concurrency:
        document["closed"] = part = closed_levels(load, args.concurrency, say)
        for row in part["levels"]:
            with_floor(row, floor, args.frames)
        at = f"; floors at position {PROMPT + args.frames / 2:.0f}" if floor is not None else ""
        print(f"\nclosed loop, {args.frames} frames each, {args.repetitions} repetitions, times in ms{at}")
        show(part["levels"], CLOSED)
    if args.reference:
        document["cold"] = part = cold_reference(load, say)
        print()
        show(part["levels"], CLOSED)
    unread_c = args.unread if args.unread >= 0 else max(args.concurrency, default=1) - 1
    if unread_c:
        say(f"C={unread_c} beside a listener that does not read")
        document["unread"] = part = load.unread(unread_c, args.unread_frames)
        print()
        show(part["levels"], CLOSED)
        print(f"it costs the others {part['cost']:.1%} of their audio-s/s")
    if args.rates:
        load.asking = msgspec.structs.replace(load.asking, frames=args.open_frames)
        rows: list[dict[str, Any]] = []
        for rate in args.rates:
            say(f"open loop, {rate:g} a second")
            rows.append(load.opened(rate))
        document["open"] = {"levels": rows}
        print(f"\nopen loop, {args.open_frames} frames each, Poisson arrivals, times in ms")
        show(rows, OPEN)


def engine_part(args: argparse.Namespace, sets: list[str], device: str) -> dict[str, Any]:
    """In a process of its own, so that the GPU's memory is free again for the server."""
    job = {
        "pipeline": args.pipeline, "deploy": args.deploy, "sets": sets, "device": device, "frames": args.frames,
        "concurrency": args.concurrency, "repetitions": args.repetitions, "each": args.each, "seed": args.seed,
        "voice": args.voice, "language": args.language, "texts": [args.text] if args.text else list(TEXTS),
    }  # fmt: skip
    say("the engine alone")
    command = [sys.executable, str(Path(__file__).with_name("tts_engine.py"))]
    done = subprocess.run(
        command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, timeout=ENGINE_LIMIT_S, check=False
    )
    if done.returncode:
        sys.exit("the engine alone failed; see above")
    part = json.loads(done.stdout.splitlines()[-1])
    print("\n" + engine_tables(part))
    return part


# ---------------------------------------------------------------- settings


def asking_for(args: argparse.Namespace, model: dict[str, Any], url: str) -> Asking:
    voices = model.get("omnirt", {}).get("voices", [])
    voice = args.voice or ("" if args.reference or not voices else "vivian" if "vivian" in voices else voices[0])
    return Asking(
        url=url,
        frames=args.frames,
        model=model["id"],
        voice=voice,
        language=args.language,
        texts=(args.text,) if args.text else TEXTS,
        seed=args.seed,
        reference=args.reference,
        reference_text=args.ref_text if args.reference else "",
    )


def extent_of(args: argparse.Namespace) -> Extent:
    return Extent(args.repetitions, args.each, args.seconds, seconds_max=max(args.seconds, args.seconds_max))


def clients() -> int:
    return max(1, (os.cpu_count() or 1) // 4)


def settings_of(args: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    """The arguments, and the stages with all that holds for them, set or not: rows, chunks, the cache."""
    stages = {
        stage.name: {"batch": stage.batch, "group": stage.group}
        | msgspec.to_builtins(msgspec.convert(stage.options, resolve(stage.actor).Options))
        for stage in plan.stages
    }
    nodes = {node.name: {"device": node.device, "threads": node.threads} for node in plan.nodes}
    return {"arguments": vars(args), "stages": stages, "nodes": nodes}


def with_floor(row: dict[str, Any], floor: Floor | None, frames: int) -> None:
    if floor is not None:
        row["floor_audio_s_per_s"] = floor.audio_s_per_s(row["concurrency"], PROMPT + frames / 2)
        row["floor_share"] = row["audio_s_per_s"] / row["floor_audio_s_per_s"]


def errors_of(document: dict[str, Any]) -> int:
    rows = [row for part in ("closed", "cold", "unread", "open") for row in document.get(part, {}).get("levels", ())]
    return sum(row["errors"] + row["wrong"] for row in rows)


def headline(args: argparse.Namespace, document: dict[str, Any]) -> str:
    on = document["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in on["packages"].items())
    packages += f", CUDA {on['cuda']}" if on["cuda"] else ""
    where = f"{on['gpu']['name']}, driver {on['gpu']['driver']}; " if on["gpu"] else ""
    stages = "\n".join(
        f"{name}: {', '.join(f'{key} {value}' for key, value in options.items() if key != 'weights' and value != '')}"
        for name, options in document["settings"]["stages"].items()
    )
    return (
        f"{args.pipeline}: {args.frames} frames are {args.frames * FRAME_S:g} s; commit {on['commit']}\n"
        f"{where}{on['cores']} x {on['cpu']}, Python {on['python']}, {packages}\n{stages}"
    )


def show(rows: list[dict[str, Any]], columns: Sequence[Column]) -> None:
    print(table(rows, columns))
    for row in rows:
        if row["errors"]:
            print(f"{row['name']}: " + ", ".join(f"{count} x {code}" for code, count in row["codes"].items()))


def print_server(server: dict[str, Any]) -> None:
    starts = ", ".join(f"{took:.1f}" for took in server["starts_s"])
    print(f"\nstart to ready: {starts} s ({server['weights_gb']:.2f} GB of weights in the page cache)")
    if server.get("gpu_mib") is not None:
        print(f"GPU memory: {server['gpu_mib_ready'] - server['gpu_mib_before']:.0f} MiB when ready, "
              f"{server['gpu_mib']:.0f} MiB after all of this")  # fmt: skip


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


def _counts(text: str) -> list[int]:
    return [count for part in text.split(",") if (count := int(part)) > 0]


def _rates(text: str) -> list[float]:
    return [rate for part in text.split(",") if (rate := float(part)) > 0]


if __name__ == "__main__":
    sys.exit(main())
