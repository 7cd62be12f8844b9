"""`omnirt plan`: the placed pipeline as tables, before anything starts. 1 when this machine has no room for it."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from omnirt.cli.options import add_pipeline_arguments, plan_from
from omnirt.pipeline.describe import describe, shortage

SHM = "/dev/shm"


def add_arguments(parser: ArgumentParser) -> None:
    add_pipeline_arguments(parser)


def run(args: Namespace) -> int:
    plan = plan_from(args)
    free = shm_free_bytes()
    print(describe(plan, free))
    return 1 if shortage(plan, free) else 0


def shm_free_bytes() -> int:
    status = os.statvfs(SHM)
    return status.f_bavail * status.f_frsize
