"""Many jobs in one command: the lines of a file, or the combinations of a matrix."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.client import Client, Json
from cli.commands.sending import SendOptions
from cli.output.printing import Answer, fitted, note, price
from core.errors import ZenError

PART = 1000
"""Jobs of one request."""
LINES_MAX = 100_000
BYTES_MAX = 64 * 1024 * 1024


class BadBatch(ZenError):
    """The file cannot be used; nothing was submitted."""

    code = "bad_batch"


def read_lines(file: Path) -> list[tuple[int, Json]]:
    """(line, submission) of an NDJSON file. BadBatch names every line that is no object."""
    try:
        if str(file) == "-":
            text = sys.stdin.read(BYTES_MAX + 1)
        else:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(BYTES_MAX + 1)
    except UnicodeDecodeError:
        raise BadBatch(f"{file}: not UTF-8 text") from None
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(text) > BYTES_MAX or len(lines) > LINES_MAX:
        raise BadBatch(f"{file}: more than {LINES_MAX} jobs or {BYTES_MAX} characters: split it")
    if not lines:
        raise BadBatch(f"{file}: no jobs; expected one JSON object in each line")
    found, faults = [], []
    for number, line in lines:
        read = _object(line)
        if isinstance(read, dict):
            found.append((number, read))
        else:
            faults.append(f"{file}:{number}: {read}")
    if faults:
        raise BadBatch("\n".join(faults))
    return found


def _object(line: str) -> dict[str, Any] | str:
    """The object, or what is wrong with the line."""
    try:
        read = json.loads(line)
    except ValueError as error:
        return f"not JSON: {error}"
    return read if isinstance(read, dict) else "expected a JSON object with the fields of a job"


def send_batch(client: Client, jobs: Sequence[tuple[int, Json]], own: SendOptions) -> Answer:
    """Submits the jobs, each by itself: a refusal stops no other. Exit code 1 if one is refused."""
    results: list[Json] = []
    for start in range(0, len(jobs), PART):
        part = jobs[start : start + PART]
        answer = client.post("/jobs:batch", {"jobs": [body for _, body in part]})
        told = zip(part, answer["results"], strict=True)
        results += [{"line": number, **result} for (number, _), result in told]
    refused = [one for one in results if one["status"] != "submitted"]
    for one in refused:
        note(f"line {one['line']}: {one['error']}")
    stored = [one for one in results if one["status"] == "submitted"]
    words = f"{len(stored)} submitted, {len(refused)} refused"
    body = {"submitted": len(stored), "refused": len(refused), "results": results}
    if own.quiet:
        return Answer(body, [one["job_id"] for one in stored], code=int(bool(refused)))
    rows = [
        [
            *(one["line"], one["job_id"], one.get("tenant_id"), one["cluster"]),
            price(one["usd_per_hour"]) if one.get("usd_per_hour") is not None else "",
            one.get("message"),
        ]
        for one in stored
    ]
    table = fitted(("LINE", "JOB", "TENANT", "CLUSTER", "$/H", ""), rows, right="LINE $/H")
    return Answer(body, [table, words] if rows else [words], code=int(bool(refused)))
