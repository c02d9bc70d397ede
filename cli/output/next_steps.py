"""What a person can do once the stack runs, in a few lines."""

from __future__ import annotations

import os

from cli.paths import PROGRAM, Running


def next_steps(running: Running) -> list[str]:
    """What to do now, for people who see this for the first time."""
    moved = [] if running.api.endswith(":8080") else ["  (not the usual port 8080)"]
    kind = "--gpus 2 --gpu-type a100-40gb" if running.sim else "--gpus 1"
    look = f"{PROGRAM} sim stockout us-central1 --for 10m" if running.sim else f"{PROGRAM} vms"
    others = [api for api in running.apis if api != running.api]
    more = [f"  the other replicas: {', '.join(others)}"] if others else []
    return [
        f"ready: {running.api} (API), {running.api}/docs (its description)",
        *moved,
        *more,
        f"  {running.note}",
        *who_runs_jobs(),
        f"  bus: PUBSUB_EMULATOR_HOST={running.bus} (libraries)",
        f"       CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB={running.bus_rest}/ (gcloud)",
        f"  configuration: {running.config} (edit it while it runs: {PROGRAM} config diff)",
        f"  try:  {PROGRAM} submit {kind} -- python3 -c 'print(42)'",
        f"        {PROGRAM} jobs --watch   {PROGRAM} logs -f JOB   {PROGRAM} show JOB",
        f"        {PROGRAM} clusters       {look}",
    ]


def who_runs_jobs() -> list[str]:
    """Only root can give jobs users of their own; anybody else should know it."""
    if os.geteuid() == 0:
        return []
    return [
        "  jobs run as you: they can read your files and signal your processes (not root);",
        "  so only tenant default may submit",
    ]
