"""Workers that are not ours, on a real stack: by bare REST, with Google's library, by `gcloud`.
`python -m bench.v1_workers` runs longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.local import LocalStack
from bench.v1_verdict import ExpectedJob, V1Verdict
from bench.v1_workers import TIMERS, Kills, expected_jobs_for, play, v1_stack
from tests.localbus.backends import why_no_gcloud

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
GCLOUD_MISSING = why_no_gcloud()
SPEAK = {"1xl4": "rest", "1xt4": "library", "2xa100-40gb": "gcloud"}
# A busy machine needs seconds for each `gcloud`, and a worker two of them for a heartbeat.
PATIENT = {
    **TIMERS,
    "self_stop_after_s": 45,
    "lost_after_s": 60,
    "stop_grace_s": 60,
    "boot_timeout_s": 90,
}
OK, STOPPED = frozenset({"COMPLETED"}), frozenset({"STOPPED"})
Place = tuple[LocalStack, Path]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One stack for all; each cluster's workers speak in their own way."""
    speak = ",".join(f"{name}={kind}" for name, kind in SPEAK.items())
    with v1_stack(speak, 1, PATIENT) as up:
        yield up


def stopped(cluster: str) -> ExpectedJob:
    """Runs until somebody stops it."""
    return ExpectedJob("0", f"held-{cluster}", cluster, ticks=6000, ends=STOPPED, stop=True)


def assert_good(verdict: V1Verdict) -> None:
    assert verdict.faults == [], verdict.timelines


def test_jobs_of_v1_workers_with_vms_crashing(place: Place) -> None:
    """None lost, none run twice but by a crash, none at once, no VM and no target left."""
    expected_jobs = [
        replace(expected_job, cluster="1xl4") for expected_job in expected_jobs_for(14, seed=1)
    ]
    kills = Kills(4, every_s=1.0, acts=("crash",))
    verdict = play(*place, expected_jobs, kills)
    assert_good(verdict)
    assert verdict.story.acts["crash"] > 0
    assert {"COMPLETED", "FAILED", "STOPPED"} == set(verdict.statuses.values())


def test_workers_with_googles_library(place: Place) -> None:
    """google-cloud-pubsub takes the start, heartbeats, and finds the stop; another runs to its
    end."""
    well = ExpectedJob("ada", "well", "1xt4", ticks=10, ends=OK, leave="instance")
    assert_good(play(*place, [well, stopped("1xt4")], Kills(0)))


@pytest.mark.timeout(400)
@pytest.mark.skipif(GCLOUD_MISSING is not None, reason=f"needs gcloud: {GCLOUD_MISSING}")
def test_workers_with_gcloud(place: Place) -> None:
    """The `gcloud pubsub` command line does; the workflow's notes are on the timeline."""
    stack, _ = place
    expected_job = stopped("2xa100-40gb")
    assert_good(play(*place, [expected_job], Kills(0)))
    events = stack.get(f"/jobs/{expected_job.job}/events", page_size=500)["events"]
    words = [event["event"] for event in events]
    assert words[:5] == ["submitted", "admitted", "offered", "found_by_v1", "started"]
    assert {"wf-ticks-all-start", "wf-ticks-all-finish"} <= set(words)
    assert words[-1] == "stopped"
