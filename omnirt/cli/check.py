"""`omnirt check`: every mistake in a pipeline, a line each. Loads nothing. Status 1 when there is an error."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from omnirt.cli.options import add_pipeline_arguments, checked_from
from omnirt.pipeline.findings import errors


def add_arguments(parser: ArgumentParser) -> None:
    add_pipeline_arguments(parser)


def run(args: Namespace) -> int:
    checked = checked_from(args)
    for finding in checked.findings:
        print(finding)
    wrong = len(errors(checked.findings))
    if checked.plan is None:
        print(f"{args.pipeline}: {wrong} error{'s' if wrong != 1 else ''}")
        return 1
    plan = checked.plan
    print(f"{args.pipeline}: ok, {len(plan.stages)} stages, {len(plan.edges)} edges, {len(plan.nodes)} nodes")
    return 0
