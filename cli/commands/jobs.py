"""Commands about jobs: jobs, logs, stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from cli.client import Client, Json, Refused, path
from cli.commands.groups import one_by_one, stop_body, summary
from cli.commands.known_names import refuse_unknown
from cli.job_options import filter_options
from cli.options import AsJson, Cluster, Given, JobOrArray, Limit, User, command
from cli.output.cells import Cell
from cli.output.counts import counted
from cli.output.durations import between, moment, short
from cli.output.etas import eta_cell
from cli.output.printing import Answer, fitted, not_all, status_text, total_words, watch
from cli.output.tables import Fitted
from cli.paths import PROGRAM
from core.clock import SystemClock
from core.job_status import FINAL, JobStatus

STATES = ("pending", "scheduled", "running", "preempted", "completed", "failed", "cancelled")
HEADINGS = (
    *("JOB", "NAME", "STATUS", "CLUSTER", "REGION", "VM"),
    *("AGE", "ETA", "RUN", "PROGRESS", "WHY"),
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options that are no field of a submission."""

    watch: Annotated[bool, typer.Option("--watch", "-w", help="Live, until Ctrl-C.")] = False
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="S", help="pending, running, failed… or QUEUED, STOPPING…"),
    ] = None
    cluster: Cluster = None
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Repeatable.")
    ] = None
    limit: Limit = 50
    as_json: AsJson = False


@partial(command, made=filter_options())
def jobs(client: Client, own: ListOptions, given: Given) -> None:
    """The jobs, newest first: where each one is and why it waits.

    \b
    Examples:
      zen jobs
      zen jobs --watch
      zen jobs --state running --cluster 2xa100-40gb
      zen jobs --label team=vision --json
      zen jobs --group sweep --state failed
    """
    query = {
        **given,
        "cluster": own.cluster,
        "label": own.label or None,
        "page_size": own.limit,
        **_state_query(own.state),
    }
    shown = _Listed(
        client, query, filtered=any((own.cluster, own.label, own.state, *given.values()))
    )
    if own.watch:
        watch(lambda: client.get("/jobs", query), shown.watched, _lines, own.as_json)
    shown.once().print(own.as_json)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What is asked of the API, and how it is printed."""

    client: Client
    query: Mapping[str, Any]
    filtered: bool

    def counts(self) -> str | None:
        """Of a group: its jobs by status."""
        group, user = self.query.get("group"), self.query.get("user_id")
        return None if group is None else str(summary(self.client, group, user)["message"])

    def once(self) -> Answer:
        counts, page = self.counts(), self.client.get("/jobs", self.query)
        below = [] if counts is None else [f"{self.query['group']}: {counts}"]
        if page["jobs"]:
            table = jobs_table(page, _now())
            return Answer(page, [table, *below], not_all(page, len(page["jobs"])))
        tenant = self.query.get("tenant_id")
        refuse_unknown(self.client, cluster=self.query["cluster"], tenant=tenant)
        nothing = f"no jobs; submit one: {PROGRAM} submit --gpus 1 -- python3 -c 'print(42)'"
        if self.filtered:
            nothing = f"no jobs match; without filters: {PROGRAM} jobs"
        return Answer(page, [nothing, *below])

    def watched(self, page: Json, height: int) -> Fitted:
        """The jobs with their totals: what does not fit on the screen is counted."""
        shown = len(page["jobs"])
        match = f"{total_words(page)} jobs" + (" match" if self.filtered else "")
        newest = f", the newest {shown} are listed (more: --limit)" if page["total"] > shown else ""
        counts = self.counts()
        if counts is None and not self.filtered:
            counts = counted(self.client.get("/status")["jobs"]) or "none"
        told = "" if counts is None else f": {counts}"
        return jobs_table(page, _now(), height, (f"{match}{told}{newest}",))


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a log, and how it is printed."""

    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job ends.")] = False
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, metavar="N", help="Default: the newest.")
    ] = None
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Last N lines only.")
    ] = None
    raw: Annotated[
        bool, typer.Option("--raw", help="With its orders to the terminal, byte by byte.")
    ] = False
    user: User = None
    as_json: AsJson = False


@command
def logs(client: Client, job: JobOrArray, own: LogOptions) -> None:
    """The job's own output. Of an array or a group: of all its jobs, each line behind its job's id.

    Colours are kept; orders to the terminal (title, clipboard, cursor, bell) are left out.

    \b
    Examples:
      zen logs train-7
      zen logs -f train-7
      zen logs --attempt 1 --tail 50 train-7
      zen logs sweep --tail 1
    """
    from cli.output.logs import LogView, follow_log, print_log

    print_one = follow_log if own.follow else print_log
    try:
        view = LogView(job, own.user, own.attempt, own.tail, own.as_json, own.raw)
        print_one(client, view)
    except Refused as error:
        from cli.commands.arrays import follow_logs, group_of, print_logs

        found = group_of(client, job, own.user, error)
        if own.follow and (own.attempt is not None or own.tail is not None):
            raise typer.BadParameter("--attempt and --tail: not with -f of an array") from error
        if own.follow:
            follow_logs(client, found, own.as_json, own.raw)
        else:
            print_logs(client, found, own.attempt, own.tail, own.as_json, own.raw)


@command
def stop(
    client: Client,
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
) -> Answer:
    """Stops jobs: SIGTERM, their grace time, SIGKILL. A job that waits is cancelled at once.

    The timeline says who did it: your user name and this machine, which nobody verifies.

    \b
    Examples:
      zen stop train-7
      zen stop train-7 train-8 --reason "wrong data"
      zen stop --group sweep
    """
    if bool(job) == bool(group):
        raise typer.BadParameter("name jobs, or one group with --group")
    body = stop_body(reason)
    if group:
        answer = client.post(path("groups", group, "stop"), body, {"user_id": user})
        return Answer(answer, [f"{group}: {answer['message']}"])
    return one_by_one(job or (), lambda one: _stop(client, one, user, body), "job_id", "jobs")


def _stop(client: Client, job_id: str, user: str | None, body: Json) -> Json:
    """One job, or all jobs of an array."""
    try:
        return client.post(path("jobs", job_id, "stop"), body, {"user_id": user})
    except Refused as error:
        from cli.commands.arrays import group_of

        group_of(client, job_id, user, error)
        return client.post(path("groups", job_id, "stop"), body, {"user_id": user})


# --- tables -------------------------------------------------------------------------------------


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


def _status(job: Json) -> Cell:
    """Of a gang: how many of its members run."""
    text = status_text(job["status"])
    if job.get("members_running") is not None and job["status"] not in FINAL:
        return Cell.joined(text, f" {job['members_running']}/{vms_of(job)}")
    return text


def _lines(page: Json) -> dict[str, str]:
    jobs = reversed(page["jobs"])
    return {f"{job['user_id']}/{job['job_id']}": _job_line(job) for job in jobs}


def _job_line(job: Json) -> str:
    words = [job["job_id"], job["status"], cluster_of(job)]
    if job.get("vm"):
        words.append(f"{job['vm']['name']} in {job['vm']['region']}")
    if job.get("progress"):
        words.append(progress(job))
    return "  ".join(word for word in [*words, why(job)] if word)


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
    if state.upper() in JobStatus.__members__:
        return {"status": state.upper()}
    known = ", ".join([*STATES, *JobStatus])
    raise typer.BadParameter(f"--state: got {state!r}, expected one of {known}")


def _now() -> datetime:
    return SystemClock().now()
