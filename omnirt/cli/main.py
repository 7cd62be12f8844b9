"""`omnirt COMMAND`: finds the command, runs it, and turns errors into one line that names the fix.

A command is a module of this package with `add_arguments(parser)` and `run(args) -> int`; only the one asked for is
imported. Exit status: what the command returns, or 2 when it could not start.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

import omnirt
from omnirt.errors import OmnirtError
from omnirt.pipeline.findings import PipelineError

COMMANDS = {
    "run": "serve a pipeline",
    "plan": "show placement, memory, rings, credits and threads of a pipeline, before anything starts",
    "check": "find every mistake in a pipeline file",
    "doctor": "is this machine fit to serve, and for that pipeline",
    "say": "speak a text through a running server, into a file",
    "chat": "talk with a running server: text, and voice on request",
    "top": "how a running server does, as a live table",
}


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return _run(*_parsed(list(sys.argv[1:] if argv is None else argv)))
    except KeyboardInterrupt:  # at any moment, also while a command is being imported
        return 130


def _parsed(arguments: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="omnirt", description=omnirt.__doc__)
    parser.add_argument("--version", action="version", version=f"omnirt {omnirt.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), "")
    module: ModuleType | None = None
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            module = importlib.import_module(f"omnirt.cli.{name}")
            module.add_arguments(command)
    args = parser.parse_args(arguments)
    assert module is not None, "the parser refuses what is not a command"
    return module, args


def _run(module: ModuleType, args: argparse.Namespace) -> int:
    try:
        return module.run(args)
    except PipelineError as error:
        for finding in error.findings:
            print(finding, file=sys.stderr)
    except OmnirtError as error:
        print(f"error: {error.message}", file=sys.stderr)
    except BrokenPipeError:  # the reader of a table went away
        sys.stderr.close()
        return 141
    return 2


if __name__ == "__main__":
    sys.exit(main())
