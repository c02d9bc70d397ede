"""The programs that we serve, in the order of docs/internals/compatibility.md."""

from __future__ import annotations

from tests.clients.programs import (
    alnair,
    gpu_scheduler,
    jobscheduler,
    lumino_api,
    pipeline_zen,
    python_pubsub,
    scheduler_zen,
    tgpu,
)
from tests.clients.programs.frame import ClientProgram

PROGRAMS: tuple[ClientProgram, ...] = (
    pipeline_zen.PROGRAM,
    lumino_api.PROGRAM,
    scheduler_zen.PROGRAM,
    jobscheduler.PROGRAM,
    gpu_scheduler.PROGRAM,
    alnair.PROGRAM,
    tgpu.PROGRAM,
    python_pubsub.PROGRAM,
)
