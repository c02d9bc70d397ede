"""zen diff: what differs between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from cli.client import Client, Json, path
from cli.commands.jobs import cluster_of, run_time, vm_of
from cli.commands.resubmit import stored_submission
from cli.options import User, command
from cli.output.durations import moment, short
from cli.output.printing import Answer, fitted, money
from core.clock import SystemClock

First = Annotated[str, typer.Argument(metavar="JOB", help="A job id.")]
Second = Annotated[str, typer.Argument(metavar="OTHER", help="The job to compare it with.")]
MISSING = "-"


@command
def diff(
    client: Client,
    first: First,
    second: Second,
    every: Annotated[bool, typer.Option("--all", help="What is equal too.")] = False,
    user: User = None,
) -> Answer:
    """What differs between two jobs: what they asked for, where they ran, how long, what for.

    The exit code is 0 whether they differ or not. Values of the environment that you may not see
    are not compared, only their names.

    \b
    Examples:
      zen diff train-7 train-8
      zen diff train-7 train-8 --all --json
    """
    sides = [_facts(client, job, user) for job in (first, second)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    rows = [
        (name, sides[0].get(name), sides[1].get(name))
        for name in names
        if every or sides[0].get(name) != sides[1].get(name)
    ]
    told = [{"what": name, "values": [one, other]} for name, one, other in rows]
    json = {"jobs": [first, second], "differences": told}
    if not rows:
        return Answer(json, [f"{first} and {second} do not differ"])
    table = [[name, _cell(one), _cell(other)] for name, one, other in rows]
    return Answer(json, [fitted(("WHAT", first, second), table)])


def _facts(client: Client, job: str, user: str | None) -> dict[str, Any]:
    """What is compared, by name: first what was asked for, then what became of it."""
    found = client.get(path("jobs", job), {"user_id": user})
    asked = stored_submission(client, found["job_id"], found["user_id"])
    facts = dict(_flat(asked["submission"]))
    facts |= {f"environment.{name}": "(hidden)" for name in asked["hidden"]}
    return facts | _outcome(found)


def _flat(submission: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Variables, labels and secrets one by one."""
    for name, value in submission.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            yield name, value


def _outcome(job: Json) -> dict[str, Any]:
    now, vm = SystemClock().now(), vm_of(job)
    started, submitted = moment(job.get("started_at")), moment(job["submitted_at"])
    waited = None
    if started is not None and submitted is not None:
        waited = short((started - submitted).total_seconds())
    kinds = {
        f"cost {'work' if kind == 'useful' else kind}": money(usd)
        for kind, usd in (job.get("cost_kinds") or {}).items()
        if usd
    }
    return {
        "status": job["status"],
        "ran in cluster": cluster_of(job),
        "region": vm.get("region"),
        "zone": vm.get("zone"),
        "attempts": job["attempt"],
        "exit code": job.get("exit_code"),
        "submitted": job["submitted_at"],
        "until its last start": waited,
        "run time": run_time(job, now),
        "cost": money(job.get("cost_usd")),
        **kinds,
    }


def _cell(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
