"""Commands about jobs: jobs, logs, stop."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.groups import stop_body, stop_group, summary
from cli.commands.known_names import refuse_unknown
from cli.job_options import Given, filter_options, takes_fields
from cli.options import Api, AsJson, JobOrArray, User
from cli.output.durations import between, moment, short
from cli.output.etas import eta_cell
from cli.output.printing import (
    console,
    emit,
    fitted,
    note,
    say,
    status_text,
    watch_json,
    watch_lines,
    watch_table,
)
from cli.paths import PROGRAM
from core.clock import SystemClock
from core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rich.text import Text

    from cli.client import Client, Json
    from cli.output.tables import Fitted

STATES = ("pending", "scheduled", "running", "preempted", "completed", "failed", "cancelled")
HEADINGS = (
    *("JOB", "NAME", "STATUS", "CLUSTER", "REGION", "VM"),
    *("AGE", "ETA", "RUN", "PROGRESS", "WHY"),
)
FINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options that are no field of a submission."""

    watch: Annotated[bool, typer.Option("--watch", "-w", help="Live, until Ctrl-C.")] = False
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="S", help="pending, running, failed… or QUEUED, STOPPING…"),
    ] = None
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="C")] = None
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Repeatable.")
    ] = None
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Newest first.")] = 50
    api: Api = None
    as_json: AsJson = False


@takes_fields(ListOptions, filter_options())
def jobs(own: ListOptions, given: Given) -> None:
    """The jobs, newest first: where each one is and why it waits.

    \b
    Examples:
      zen jobs
      zen jobs --watch
      zen jobs --state running --cluster 2xa100-40gb
      zen jobs --label team=vision --json
      zen jobs --group sweep --state failed
    """
    from cli.client import Client, api_address

    query = {
        **given,
        "cluster": own.cluster,
        "label": own.label or None,
        "page_size": own.limit,
        **_state_query(own.state),
    }
    shown = _Listed(query, filtered=any((own.cluster, own.label, own.state, *given.values())))
    with Client(api_address(own.api)) as client:
        if own.watch and own.as_json:
            watch_json(lambda: shown.read(client))
        elif own.watch and sys.stdout.isatty():
            watch_table(lambda height: shown.watched(client, height))
        elif own.watch:
            watch_lines(lambda: _lines(shown.read(client)))
        else:
            shown.once(client, own.as_json)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What is asked of the API, and how it is printed."""

    query: Mapping[str, Any]
    filtered: bool

    def read(self, client: Client) -> Json:
        return client.get("/jobs", self.query)

    def counts(self, client: Client) -> str | None:
        """Of a group: its jobs by status."""
        group, user = self.query.get("group"), self.query.get("user_id")
        return None if group is None else str(summary(client, group, user)["message"])

    def once(self, client: Client, as_json: bool) -> None:
        counts, page = self.counts(client), self.read(client)
        if not page["jobs"]:
            refuse_unknown(
                client, cluster=self.query["cluster"], tenant=self.query.get("tenant_id")
            )
        if as_json:
            emit(page)
            return
        _print_jobs(page, self.filtered)
        if counts is not None:
            say(f"{self.query['group']}: {counts}")

    def watched(self, client: Client, height: int) -> Fitted:
        """The jobs with their totals: what does not fit on the screen is counted."""
        page = self.read(client)
        shown = len(page["jobs"])
        match = f"{page['total']} jobs" + (" match" if self.filtered else "")
        newest = f", the newest {shown} are listed (more: --limit)" if page["total"] > shown else ""
        counts = self.counts(client)
        if counts is None and not self.filtered:
            counts = counted(client.get("/status")["jobs"]) or "none"
        told = "" if counts is None else f": {counts}"
        return jobs_table(page, _now(), height, (f"{match}{told}{newest}",))


def logs(
    job: JobOrArray,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job ends.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, metavar="N", help="Default: the newest.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Last N lines only.")
    ] = None,
    user: User = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """The job's own output. Of an array or a group: of all its jobs, each line behind its job's id.

    \b
    Examples:
      zen logs train-7
      zen logs -f train-7
      zen logs --attempt 1 --tail 50 train-7
      zen logs sweep --tail 1
    """
    from cli.client import Client, Refused, api_address
    from cli.output.logs import follow_log, print_log

    with Client(api_address(api)) as client:
        try:
            if follow:
                follow_log(client, job, user, attempt, tail, as_json)
            else:
                print_log(client, job, user, attempt, tail, as_json)
        except Refused as error:
            from cli.commands.arrays import follow_logs, group_of, print_logs

            found = group_of(client, job, user, error)
            if follow and (attempt is not None or tail is not None):
                raise typer.BadParameter("--attempt and --tail: not with -f of an array") from error
            if follow:
                follow_logs(client, found, as_json)
            else:
                print_logs(client, found, attempt, tail, as_json)


def stop(
    job: Annotated[
        list[str] | None, typer.Argument(metavar="JOB…", help="Ids of jobs or arrays.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="G", help="All jobs of a group or an array.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Kept on the timeline.")
    ] = None,
    user: User = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Stops jobs: SIGTERM, their grace time, SIGKILL. A job that waits is cancelled at once.

    The timeline says who did it: your user name and this machine, which nobody verifies.

    \b
    Examples:
      zen stop train-7
      zen stop train-7 train-8 --reason "wrong data"
      zen stop --group sweep
    """
    from cli.client import Client, Refused, api_address

    if bool(job) == bool(group):
        raise typer.BadParameter("name jobs, or one group with --group")
    body = stop_body(reason)
    answers: list[Json] = []
    failed = False
    with Client(api_address(api)) as client:
        if group:
            stop_group(client, group, user, reason, as_json)
            return
        for job_id in job or ():
            try:
                answer = _stop(client, job_id, user, body)
            except (Refused, NotFound) as error:
                failed = True
                note(str(error))
                answers.append({"job_id": job_id, "error": str(error), "code": error.code})
                continue
            answers.append(answer)
            if not as_json:
                say(f"{job_id}: {answer.get('message') or answer.get('status')}")
    if as_json:
        emit(answers[0] if len(answers) == 1 else {"jobs": answers})
    if failed:
        raise typer.Exit(1)


def _stop(client: Client, job_id: str, user: str | None, body: Json) -> Json:
    """One job, or all jobs of an array."""
    from cli.client import Refused, path

    try:
        return client.post(path("jobs", job_id, "stop"), body, {"user_id": user})
    except Refused as error:
        from cli.commands.arrays import group_of

        group_of(client, job_id, user, error)
        return client.post(path("groups", job_id, "stop"), body, {"user_id": user})


# --- tables -------------------------------------------------------------------------------------


def counted(counts: Json) -> str:
    """3 running, 12 queued."""
    return ", ".join(f"{n} {name.lower()}" for name, n in counts.items() if n)


def jobs_table(
    page: Json, now: datetime, height: int | None = None, foot: Sequence[str] = ()
) -> Fitted:
    """The jobs of one page; on a screen of that height as many as fit."""
    found = page["jobs"]
    rows: list[list[object]] = [
        [
            job["job_id"],
            job.get("name"),
            _status(job),
            cluster_of(job),
            vm_of(job).get("region"),
            short_vm(vm_of(job).get("name")),
            between(job["submitted_at"], now),
            eta_cell(job, now),
            run_time(job, now),
            progress(job),
            why(job),
        ]
        for job in found
    ]
    return fitted(
        HEADINGS,
        rows,
        right="AGE ETA RUN",
        drop="PROGRESS NAME RUN VM ETA",
        below="WHY",
        foot=foot,
        height=height,
    )


def cluster_of(job: Json) -> str:
    """Its cluster; spot VMs are named as such, unless the cluster's own name says it."""
    name = str(job["cluster"])
    return f"{name} (spot)" if job.get("on_spot") and not name.endswith("-spot") else name


def vm_of(job: Json) -> Json:
    """Where it runs; of one that has ended, where it ran last. One that waits is nowhere."""
    found = job.get("vm") or (job.get("last_vm") if job["status"] in FINAL else None)
    return found or {}


def _status(job: Json) -> Text:
    """Of a gang: how many of its members run."""
    text = status_text(job["status"])
    if job.get("members_running") is not None and job["status"] not in FINAL:
        text.append(f" {job['members_running']}/{vms_of(job)}")
    return text


def _print_jobs(page: Json, filtered: bool) -> None:
    if not page["jobs"] and filtered:
        say("no jobs match; without filters: " + f"{PROGRAM} jobs")
        return
    if not page["jobs"]:
        say(f"no jobs; submit one: {PROGRAM} submit --gpus 1 -- python3 -c 'print(42)'")
        return
    console().print(jobs_table(page, _now()))
    if page["total"] > len(page["jobs"]):
        note(f"{len(page['jobs'])} of {page['total']} shown; more with --limit")


def _lines(page: Json) -> dict[str, str]:
    return {_key(job): _job_line(job) for job in reversed(page["jobs"])}


def _job_line(job: Json) -> str:
    words = [job["job_id"], job["status"], cluster_of(job)]
    if job.get("vm"):
        words.append(f"{job['vm']['name']} in {job['vm']['region']}")
    if job.get("progress"):
        words.append(progress(job))
    return "  ".join(word for word in [*words, why(job)] if word)


def _key(job: Json) -> str:
    return f"{job['user_id']}/{job['job_id']}"


def run_time(job: Json, now: datetime) -> str:
    """How long the present or last attempt ran."""
    started = moment(job.get("started_at"))
    if started is None:
        return "-"
    ended = moment(job.get("ended_at"))
    if ended is None and job["status"] in ("QUEUED", "PROVISIONING"):
        return "-"
    return short(((ended or now) - started).total_seconds())


def progress(job: Json) -> str:
    """37/100 (37 %), as far as the job says it."""
    told = job.get("progress")
    if not told:
        return ""
    step, total = told.get("step"), told.get("total")
    if not total:
        return f"{step:g}"
    return f"{step:g}/{total:g} ({100 * step / total:.0f} %)"


def why(job: Json) -> str:
    """Why it is where it is: what it waits for, or how it ended."""
    text = str(job.get("why") or "")
    if text and job.get("position") is not None:
        text = f"#{job['position']}: {text}"
    return text or ("" if job["status"] in ("RUNNING", "SUCCEEDED") else str(job["reason"] or ""))


def short_vm(name: object) -> str:
    """The end of a VM's name: its cluster and region stand in columns of their own."""
    return str(name).rpartition("-vm-")[2] if name else ""


def vms_of(job: Json) -> str:
    """How many VMs it runs on; of an elastic job the bounds."""
    most = job.get("replicas", 1)
    least = job.get("replicas_min") or most
    return f"{least}-{most}" if least < most else str(most)


def _state_query(state: str | None) -> dict[str, object]:
    """The API knows two vocabularies: its states, and the ten statuses behind them."""
    if state is None:
        return {}
    if state.lower() in STATES and not state.isupper():
        return {"state": state.lower()}
    return {"status": state.upper()}


def _now() -> datetime:
    return SystemClock().now()
