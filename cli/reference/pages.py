"""Every page of docs/reference/, and whether what is committed is what the code says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cli.commands.job_files import schema_text
from cli.reference import access, alerts, commands, configuration, events, job_fields, metrics, rest

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands.page,
    "rest.md": rest.page,
    "access.md": access.page,
    "jobs.md": job_fields.page,
    "configuration.md": configuration.page,
    "metrics.md": metrics.page,
    "events.md": events.page,
    "alerts.md": alerts.page,
    "job.schema.json": schema_text,
}


def stale(directory: Path) -> list[str]:
    """Names of the pages that say something else than the code, or are missing."""
    return [name for name, page in PAGES.items() if _stored(directory / name) != page()]


def write(directory: Path) -> list[str]:
    """Renews what is stale; returns the names of these pages."""
    directory.mkdir(parents=True, exist_ok=True)
    renewed = stale(directory)
    for name in renewed:
        (directory / name).write_text(PAGES[name](), encoding="utf-8")
    return renewed


def _stored(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
