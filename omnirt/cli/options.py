"""The arguments that every command about a pipeline takes, so that they mean the same everywhere."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from omnirt.pipeline.deploy import Checked, check_pipeline, load_plan
from omnirt.wire.plan import Plan

HOST = "127.0.0.1"
PORT = 8091


def add_pipeline_arguments(parser: ArgumentParser, *, optional: bool = False) -> None:
    """`PIPELINE`, `--deploy`, `--set`."""
    parser.add_argument(
        "pipeline",
        metavar="PIPELINE",
        nargs="?" if optional else None,
        help="a pipeline file, the name of one that comes with omnirt (echo, voice, ...), or a checkpoint's folder",
    )
    parser.add_argument(
        "--deploy", metavar="OVERLAY", action="append", default=[], help="a file that says where things run; repeatable"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="sets",
        help="change one value, as in stage.tts.batch=4 or limits.requests_max=8; repeatable",
    )


def add_address_arguments(parser: ArgumentParser) -> None:
    """`--host`, `--port`."""
    parser.add_argument("--host", default=HOST, help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="port to listen on (default %(default)s)")


def plan_from(args: Namespace) -> Plan:
    """The plan the arguments ask for. Raises ConfigError."""
    return load_plan(args.pipeline, args.deploy, args.sets)


def checked_from(args: Namespace) -> Checked:
    """All findings, and the plan when there is one."""
    return check_pipeline(args.pipeline, args.deploy, args.sets)
