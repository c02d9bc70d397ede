"""The programs that we promise to serve, in the order of docs/compatibility.md."""

from __future__ import annotations

from cli.clients import (
    alnair,
    gpu_scheduler,
    lumino_api,
    pipeline_zen,
    python_pubsub,
    scheduler_zen,
)
from cli.clients.frame import Program

PROGRAMS: tuple[Program, ...] = (
    pipeline_zen.PROGRAM,
    lumino_api.PROGRAM,
    scheduler_zen.PROGRAM,
    gpu_scheduler.PROGRAM,
    alnair.PROGRAM,
    python_pubsub.PROGRAM,
)
