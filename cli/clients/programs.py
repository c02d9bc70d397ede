"""The programs that we promise to serve, in the order of docs/compatibility.md."""

from __future__ import annotations

from cli.clients import pipeline_zen
from cli.clients.frame import Program

PROGRAMS: tuple[Program, ...] = (pipeline_zen.PROGRAM,)
