"""zen jobs, show, stop: what they ask the API, what they print, how they fail."""

from __future__ import annotations

import getpass
import io
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from rich.console import Console

from cli.commands import jobs as jobs_commands
from cli.commands.groups import whoami
from cli.output.durations import moment
from cli.output.etas import eta_cell, eta_words, rough, run_words

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
Job = dict[str, Any]


@pytest.fixture
def page(api: Api, job: Job) -> Job:
    waiting = {
        **job,
        "job_id": "later",
        "status": "PROVISIONING",
        "vm": None,
        "started_at": None,
        "progress": None,
        "why": "us-central1 is stocked out, asking us-west1",
        "position": 2,
    }
    made = {"jobs": [waiting, job], "total": 7, "next_page_token": "t"}
    api.on("GET", "/api/v1/jobs", made)
    return made


def test_table_shows_where_each_job_is_and_why(zen: Zen, page: Job) -> None:
    """The table names status, region, the VM's suffix, progress and the reason for waiting."""
    ended = zen("jobs")
    assert ended.code == 0
    waiting, running = ended.out.splitlines()[1:3]
    assert waiting.split()[0] == "later"
    assert "#2: us-central1 is stocked out, asking us-west1" in waiting
    assert "RUNNING" in running
    assert "us-west1" in running
    assert "b4kz" in running
    assert "37/100 (37 %)" in running
    assert "line [fit]" in running
    assert "2 of 7 shown" in ended.err


def test_an_ended_job_shows_where_it_ran(zen: Zen, api: Api, job: Job) -> None:
    """It holds no VM any more; the last one is what people look for. One that waits again has
    none."""
    ended = {**job, "job_id": "done", "status": "SUCCEEDED", "vm": None, "last_vm": job["vm"]}
    again = {**ended, "job_id": "again", "status": "PROVISIONING", "why": "waits for a VM"}
    api.on("GET", "/api/v1/jobs", {"jobs": [ended, again], "total": 2, "next_page_token": None})
    done, waits = zen("jobs").out.splitlines()[1:3]
    assert "us-west1" in done
    assert "b4kz" in done
    assert "b4kz" not in waits


def test_show_tells_what_was_asked_for(zen: Zen, api: Api, job: Job) -> None:
    """Where it may run, what it may cost, and by when its owner wants it."""
    options = {
        "regions": ["us-west1", "us-east4"],
        "regions_denied": ["us-central1"],
        "max_usd_per_hour": 7.5,
        "spot": True,
        "allow_larger": True,
        "on_spot": True,
        "usd_per_hour": 1.5,
        "usd_per_hour_max": 2.25,
        "deadline": "2026-11-16T08:00:00.000Z",
    }
    ended = {**job, **options, "ended_at": "2026-11-16T08:01:05.000Z", "status": "SUCCEEDED"}
    api.on("GET", "/api/v1/jobs/train-7", ended)
    api.on("GET", "/api/v1/jobs/train-7/events", {"events": [], "next_after": None})
    api.on("GET", "/api/v1/jobs/train-7/attempts", {"attempts": []})
    api.on("GET", "/api/v1/jobs/train-7/waits", {"waits": []})
    out = zen("show", "train-7").out
    assert (
        "2 × a100-40gb, in us-west1 or us-east4, not in us-central1, at most $7.5/h for the VM, "
        "spot, larger VMs allowed"
    ) in out
    assert "2xa100-40gb (spot VMs, $1.50 to $2.25/h by region)" in out
    assert "2026-11-16T08:00:00.000Z (ended 1m05s after it)" in out


def test_json_is_what_the_api_said(zen: Zen, page: Job) -> None:
    """--json passes the API's own answer through."""
    assert zen("jobs", "--json").json == page


def test_filters_become_query_parameters(zen: Zen, api: Api, page: Job) -> None:
    """Only what was asked for is sent, under the API's names."""
    zen("jobs", "--cluster", "1xl4", "--tenant", "a", "--label", "k=v", "--limit", "3")
    assert api.query() == {"cluster": "1xl4", "tenant_id": "a", "label": "k=v", "page_size": "3"}


@pytest.mark.parametrize(
    ("word", "sent"),
    [
        ("running", {"state": "running"}),
        ("RUNNING", {"status": "RUNNING"}),
        ("queued", {"status": "QUEUED"}),
        ("pending", {"state": "pending"}),
    ],
)
def test_state_speaks_both_vocabularies(
    zen: Zen, api: Api, page: Job, word: str, sent: dict[str, str]
) -> None:
    """A word of the API's states is sent as state, one of the ten statuses as status."""
    zen("jobs", "--state", word)
    assert api.query().items() >= sent.items()


def test_no_jobs_says_what_to_do(zen: Zen, api: Api) -> None:
    """An empty list is an invitation, not an empty table."""
    api.on("GET", "/api/v1/jobs", {"jobs": [], "total": 0, "next_page_token": None})
    assert "zen submit" in zen("jobs").out


def test_watch_without_a_terminal_prints_changes_only(
    zen: Zen, api: Api, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job gets a line when it is new or changed, and none while it stays the same."""
    turns = [job, job, {**job, "status": "SUCCEEDED", "vm": None}]

    def next_turn(_: float) -> None:
        turns.pop(0)
        if not turns:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", next_turn)

    def answer(_: object) -> Any:
        return httpx.Response(200, json={"jobs": [turns[0]], "total": 1, "next_page_token": None})

    api.on("GET", "/api/v1/jobs", answer)
    ended = zen("jobs", "--watch")
    assert ended.code == 130
    assert [line.split()[1] for line in ended.out.splitlines()] == ["RUNNING", "SUCCEEDED"]


def test_table_is_cut_to_the_terminal(job: Job) -> None:
    """More jobs than lines: the last row says how many are hidden."""
    page = {"jobs": [{**job, "job_id": f"j{n}"} for n in range(50)]}
    now = moment("2026-11-16T08:00:00Z")
    assert now is not None
    made = jobs_commands.jobs_table(page, now, height=10)
    out = io.StringIO()
    Console(file=out, width=200, soft_wrap=True).print(made)
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "… 42 more"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 150])
def test_narrow_terminal_keeps_ids_and_the_why(job: Job, width: int) -> None:
    """Ids are never cut, and the why is always there, on a line of its own if need be."""
    page = {"jobs": [{**job, "status": "PROVISIONING", "why": "waits for a VM in us-east4"}]}
    now = moment("2026-11-16T08:00:00Z")
    assert now is not None
    screen = Console(width=width, record=True, file=io.StringIO())
    screen.print(jobs_commands.jobs_table(page, now))
    text = screen.export_text()
    assert job["job_id"] in text
    assert "PROVISIONING" in text
    assert "waits for a VM in us-east4" in " ".join(text.split())
    assert "…" not in text


def test_show_tells_the_whole_story(zen: Zen, api: Api, job: Job) -> None:
    """Header, attempts and timeline, also when the timeline comes in pages."""
    api.on("GET", "/api/v1/jobs/train-7", job)
    attempt = {
        "attempt": 1,
        "lease_id": "x",
        "vm_name": job["vm"]["name"],
        "region": "us-west1",
        "zone": "us-west1-b",
        "slots": [0, 1],
        "assigned_at": "2026-11-16T07:00:09Z",
        "started_at": None,
        "ended_at": None,
        "outcome": "",
        "exit_code": None,
        "usd_per_hour": 7.34,
    }
    api.on("GET", "/api/v1/jobs/train-7/attempts", {"attempts": [attempt]})
    wait: Job = {
        "kind": "refusal",
        "region": "us-central1",
        "reason": "stockout: the zone does not have enough resources available " + "x" * 40,
        "first_at": "2026-11-15T07:00:09Z",
        "last_at": "2026-11-15T09:00:09Z",
        "count": 12,
    }
    api.on("GET", "/api/v1/jobs/train-7/waits", {"waits": [wait]})

    def events(request: Any) -> Any:
        first = "after" not in request.url.params
        event: Job = {
            "seq": 1 if first else 2,
            "at": "2026-11-16T07:00:00Z",
            "event": "submitted" if first else "admitted",
            "from": None,
            "to": "QUEUED",
            "attempt": 0,
            "reason": "by you",
            "vm_name": None,
            "region": None,
            "data": {},
        }
        return httpx.Response(200, json={"events": [event], "next_after": 1 if first else None})

    api.on("GET", "/api/v1/jobs/train-7/events", events)
    ended = zen("show", "train-7")
    assert ended.code == 0
    for words in ("train-7 (line [fit])", "us-west1-b, GPUs [0, 1]", "$0.1234", "(1 loss)"):
        assert words in ended.out
    assert "submitted" in ended.out
    assert "admitted" in ended.out
    assert "$7.34/h" in ended.out
    assert "2026-11-15" in ended.out, "a wait of another day has its date"
    for words in ("Waits", "refused", "us-central1", "stockout: the zone", "x" * 40):
        assert words in ended.out
    found = zen("show", "train-7", "--json").json
    assert [event["event"] for event in found["events"]] == ["submitted", "admitted"]
    assert found["job_id"] == "train-7"
    assert found["waits"][0]["count"] == 12


def test_show_tells_what_the_job_caused(zen: Zen, api: Api, job: Job) -> None:
    """Its work, and the boot and idle time of the VMs that it made the service ask for."""
    kinds = {"useful": 3.2, "boot": 0.3, "idle": 0.5, "hedge": 0.0, "preempted": 0.0, "lost": 0.0}
    api.on("GET", "/api/v1/jobs/train-7", {**job, "cost_usd": 4.0, "cost_kinds": kinds})
    api.on("GET", "/api/v1/jobs/train-7/events", {"events": [], "next_after": None})
    api.on("GET", "/api/v1/jobs/train-7/attempts", {"attempts": []})
    api.on("GET", "/api/v1/jobs/train-7/waits", {"waits": []})
    assert "$4.00: work $3.20, boot $0.30, idle $0.50" in zen("show", "train-7").out


def test_unknown_job_is_one_line(zen: Zen, api: Api) -> None:
    """Neither a job nor an array nor a group: one line of stderr."""
    ended = zen("show", "nobody")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "zen: there is no job, array or group nobody\n"


def test_ids_cannot_leave_their_path(zen: Zen, api: Api) -> None:
    """A job id with a slash stays one segment of the path."""
    zen("show", "../status")
    assert api.requests[0].url.raw_path == b"/api/v1/jobs/..%2Fstatus"


@pytest.mark.parametrize("words", [("show",), ("logs",), ("stop",), ("artifacts",), ("fetch",)])
def test_commands_that_name_a_job_take_its_tenant(
    zen: Zen, api: Api, words: tuple[str, ...]
) -> None:
    """All that they ask is asked for this tenant; without the option nothing is said of one."""
    for option, told in ((("--tenant", "red"), "red"), ((), None)):
        api.requests.clear()
        assert zen(*words, "train-7", *option).code != 0
        assert {request.headers.get("x-zen-tenant") for request in api.requests} == {told}


def test_stop_tells_what_happens(zen: Zen, api: Api) -> None:
    """Each job gets a line; the reason travels in the body."""
    answer = {"job_id": "a", "status": "stopping", "message": "stopping, 60 s grace"}
    api.on("POST", "/api/v1/jobs/a/stop", answer)
    ended = zen("stop", "a", "--reason", "wrong data")
    assert (ended.code, ended.out) == (0, "a: stopping, 60 s grace\n")
    assert api.body() == {"reason": "wrong data", "by": whoami()}
    assert whoami().startswith(f"{getpass.getuser()}@")
    assert zen("stop", "a", "--json").json == answer


def test_stop_goes_on_after_an_unknown_job(zen: Zen, api: Api) -> None:
    """One unknown id does not save the others, and the exit code tells of it."""
    api.on("POST", "/api/v1/jobs/b/stop", {"job_id": "b", "status": "cancelled", "message": "ok"})
    ended = zen("stop", "a", "b")
    assert ended.code == 1
    assert "b: ok" in ended.out
    assert ended.err == "zen: there is no job, array or group a\n"
    both = zen("stop", "a", "b", "--json").json["jobs"]
    assert [entry.get("code", "fine") for entry in both] == ["not_found", "fine"]


NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ETA = {
    "p50": "2026-01-31T12:05:00.000Z",
    "p90": "2026-01-31T12:20:00.000Z",
    "computed_at": "2026-01-31T11:59:55.000Z",
    "based_on": "past runs",
    "run_p50_s": 90.0,
    "run_p90_s": 7200.0,
    "run_based_on": "9 past runs of this name",
}
NONE = {**ETA, "p50": None, "p90": None, "run_p50_s": None, "based_on": "no estimate: quota"}


@pytest.mark.parametrize(
    ("eta", "cell", "words"),
    [
        (None, "", ""),
        (NONE, "?", "no estimate: quota"),
        (ETA, "5m-20m", "(in 5m), 90 % likely by"),
        ({**ETA, "p50": "2026-01-31T11:59:00.000Z"}, "0s-20m", "(in 20m); past runs"),
        ({**ETA, "p90": "2026-01-31T11:59:00.000Z"}, "late", "later than was said"),
    ],
)
def test_eta_in_words(eta: Job | None, cell: str, words: str) -> None:
    """A span in the table, two moments and what they rest on in a line; without an estimate, why
    there is none."""
    job = {"eta": eta}
    assert eta_cell(job, NOW) == cell
    assert words in eta_words(job, NOW)


def test_how_long_it_will_run() -> None:
    """From its like, or not known."""
    said = "about 1m30s, 90 % likely less than 2h00m; 9 past runs of this name"
    assert run_words({"eta": ETA}) == said
    assert run_words({"eta": {**NONE, "run_based_on": "no run of this kind has ended yet"}}) == (
        "no run of this kind has ended yet"
    )
    assert [rough(span) for span in (-5, 100, 130, 8000, 300000)] == [
        "0s",
        "100s",
        "2m",
        "2h",
        "3d",
    ]


def test_jobs_name_spot(zen: Zen, api: Api, job: Job) -> None:
    """Beside the cluster, unless the cluster's own name says it."""
    rows = [{**job, "on_spot": True}, {**job, "on_spot": True, "cluster": "1xl4-spot"}, job]
    api.on("GET", "/api/v1/jobs", {"jobs": rows, "total": 3, "next_page_token": None})
    out = zen("jobs").out
    assert (out.count("2xa100-40gb (spot)"), out.count("1xl4-spot")) == (1, 1)
    assert "1xl4-spot (spot)" not in out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpu_types": [], "gpu_count": 1}, "1 GPU of any type"),
        ({"gpu_types": ["h100-80gb", "a100-80gb"]}, "2 × h100-80gb or a100-80gb"),
        ({}, "2 × a100-40gb"),
    ],
)
def test_show_says_what_was_asked_for(
    zen: Zen, api: Api, job: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    """A job that named no type did not ask for the type of its cluster; prices have two digits."""
    whole = {**job, **fields, "on_spot": False, "usd_per_hour": 0.54, "usd_per_hour_max": 0.888}
    api.on("GET", "/api/v1/jobs/train-7", whole)
    for part in ("events", "attempts", "waits"):
        api.on("GET", f"/api/v1/jobs/train-7/{part}", {part: [], "next_after": None})
    out = zen("show", "train-7").out
    assert f"asked for:    {said}\n" in out
    assert "$0.54 to $0.89/h by region" in out
