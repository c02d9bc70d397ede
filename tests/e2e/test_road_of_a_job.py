"""The whole road of a job, on real processes: submit, place, run, end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.stack import Stack, publish, stack, wait_for

pytestmark = pytest.mark.slow

SHOW_GPUS = ("python3", "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
ROAD = ["QUEUED", "PROVISIONING", "ASSIGNED", "STARTING", "RUNNING", "SUCCEEDED"]


@pytest.fixture(scope="module")
def up() -> Iterator[Stack]:
    with stack(environ={"ZEN_TIMERS__IDLE_TIMEOUT_S": "6"}) as made:
        yield made


def test_stockout_in_the_first_region_leads_to_the_second(up: Stack) -> None:
    """The job waits with the reason in words, then runs elsewhere."""
    first = up.zen("clusters", "--json").stdout
    regions = next(c for c in json.loads(first)["clusters"] if c["name"] == "2xa100-40gb")
    best = min(regions["regions"], key=lambda r: r["usd_per_hour"])["region"]
    up.zen("sim", "stockout", best, "a2-highgpu-2g", "--for", "5m")
    job_id = up.submit(*SHOW_GPUS, gpu_type="a100-40gb", gpu_count=2)
    job = up.wait(job_id)
    assert job["status"] == "SUCCEEDED"
    region = next(e["region"] for e in up.events(job_id) if e["event"] == "placed")
    assert region != best
    clusters = up.get("/clusters")["clusters"]
    blocked = {
        r["region"]: r["blocked"]
        for c in clusters
        if c["name"] == "2xa100-40gb"
        for r in c["regions"]
        if r["blocked"]
    }
    assert blocked[best]["kind"] == "stockout"


def test_cli_job_ends_with_its_own_exit_code_and_output(up: Stack) -> None:
    """submit --wait: the log on stdout, the exit code of the job."""
    done = up.zen("submit", "--wait", "--gpus", "2", "--gpu-type", "a100-40gb", "--", *SHOW_GPUS)
    assert done.stdout == "0,1\n"
    failed = up.zen("submit", "--wait", "--gpu-type", "l4", "--", "sh", "-c", "exit 7", check=False)
    assert failed.returncode == 7


def test_a_directory_gets_to_the_vm(up: Stack, tmp_path: Path) -> None:
    """What the command names runs in a copy of it; the second time nothing is sent, and a changed
    file is."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "words.py").write_text("WORD = 'first'")
    (tmp_path / "train.py").write_text("from pkg.words import WORD; print(WORD); open('x', 'w')")
    (tmp_path / "secret").write_text("not sent")
    (tmp_path / ".zenignore").write_text("secret\n")
    job = ("--gpu-type", "l4", "--", "python3", "train.py")

    def run() -> tuple[str, str]:
        done = up.zen("submit", "--wait", *job, cwd=tmp_path)
        return done.stdout, done.stderr

    out, err = run()
    assert out == "first\n"
    assert "code: 3 files" in err
    assert "sent 3 new" in err
    assert "nothing new to send" in run()[1]
    (tmp_path / "pkg" / "words.py").write_text("WORD = 'second'")
    out, err = run()
    assert out == "second\n"
    assert "sent 1 new" in err
    assert not (tmp_path / "x").exists()
    shown = up.zen("submit", "--json", "--array", "1-2", *job, cwd=tmp_path)
    sent = json.loads(shown.stdout)
    assert sent["workdir"]["sent_bytes"] == 0
    for number in (1, 2):
        assert up.wait(f"{sent['job_id']}-{number}")["status"] == "SUCCEEDED"


def test_rest_job_takes_every_step_and_keeps_its_log(up: Stack) -> None:
    """Each step is on the timeline, in order."""
    job_id = up.submit(*SHOW_GPUS, gpu_type="l4")
    job = up.wait(job_id)
    assert (job["status"], job["exit_code"], job["state"]) == ("SUCCEEDED", 0, "completed")
    assert up.history(job_id) == ROAD
    assert up.log(job_id) == "0\n"
    assert job["cost_usd"] > 0


async def test_pubsub_message_becomes_a_job(up: Stack) -> None:
    """Sent twice it is still one job; a bad one is refused and hurts nobody."""
    bad = json.dumps({"command": [], "gpu_count": -1, "gpus": 2}).encode()
    await publish(up, "pipeline-zen-jobs-submit", bad)
    body = json.dumps({"job_id": "from-pubsub", "command": [*SHOW_GPUS], "gpu_type": "l4"})
    await publish(up, "pipeline-zen-jobs-submit", b"not json")
    for _ in range(2):
        await publish(up, "pipeline-zen-jobs-submit", body.encode())

    def look() -> bool | None:
        answer = httpx.get(f"{up.api}/api/v1/jobs/from-pubsub")
        return True if answer.status_code == 200 else None

    wait_for("the job of the message", look)
    assert up.wait("from-pubsub")["status"] == "SUCCEEDED"
    assert up.log("from-pubsub") == "0\n"
    assert up.history("from-pubsub") == ROAD
    dead_letters = json.loads(up.zen("dead-letters", "list", "--source", "submit", "--json").stdout)
    by_body = {dead_letter["preview"]: dead_letter for dead_letter in dead_letters["dead_letters"]}
    assert set(by_body) == {"not json", bad.decode()}
    assert all(w in by_body[bad.decode()]["reason"] for w in ("command:", "gpu_count:", "gpus:"))
    up.zen("dead-letters", "replay", by_body[bad.decode()]["id"])

    def again() -> bool | None:
        return True if up.get("/dead-letters", source="submit")["total"] == 3 else None

    wait_for("the replayed letter refused again", again)


def test_failed_job_is_retried_while_its_retries_last(up: Stack) -> None:
    """Two attempts, then FAILED with the exit code."""
    job_id = up.submit("sh", "-c", "exit 3", gpu_type="l4", retries=1)
    job = up.wait(job_id)
    assert (job["status"], job["exit_code"], job["attempt"]) == ("FAILED", 3, 2)
    shown = up.zen("show", job_id).stdout
    assert "exited_error" in shown


def test_stop_reaches_a_running_job(up: Stack) -> None:
    """SIGTERM, the job says goodbye, CANCELLED; a second stop is no error."""
    job_id = up.submit(
        *("sh", "-c", "trap 'echo bye; exit 1' TERM; echo up; while :; do sleep 0.05; done"),
        gpu_type="l4",
    )
    wait_for("its first line", lambda: up.log(job_id) == "up\n" or None)
    up.zen("stop", job_id)
    assert up.wait(job_id)["status"] == "CANCELLED"
    assert up.log(job_id).endswith("bye\n")
    assert up.history(job_id)[-2:] == ["STOPPING", "CANCELLED"]
    assert "already" in up.zen("stop", job_id).stdout


def test_job_that_ignores_sigterm_is_killed_after_its_grace(up: Stack) -> None:
    """And a job that waits is cancelled at once."""
    job_id = up.submit(
        *("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"),
        gpu_type="l4",
        stop_grace_s=1,
    )
    wait_for("its first line", lambda: up.log(job_id) == "up\n" or None)
    up.zen("stop", job_id)
    assert up.wait(job_id, seconds=10)["status"] == "CANCELLED"


def test_max_runtime_stops_and_fails_a_job(up: Stack) -> None:
    """The reason says so."""
    job_id = up.submit("sleep", "60", gpu_type="l4", max_runtime_minutes=0.02)
    job = up.wait(job_id)
    assert job["status"] == "FAILED"
    assert "max runtime" in job["reason"]


def test_crashed_vm_gives_its_job_to_another(up: Stack) -> None:
    """Lost, queued again, one attempt older, and it ends well."""
    job_id = up.submit("sh", "-c", "[ $ZEN_ATTEMPT = 2 ] || sleep 60", gpu_type="l4")
    vm = up.wait(job_id, "RUNNING")["vm"]["name"]
    up.zen("sim", "crash", vm)
    job = up.wait(job_id)
    assert (job["status"], job["attempt"], job["retries"]["losses"]) == ("SUCCEEDED", 2, 1)
    assert "vm_lost" in [e["event"] for e in up.events(job_id)]


def test_silent_worker_is_lost_and_its_vm_removed(up: Stack) -> None:
    """A frozen machine says nothing: its job goes on elsewhere, the VM is deleted."""
    job_id = up.submit("sh", "-c", "[ $ZEN_ATTEMPT = 2 ] || sleep 120", gpu_type="l4")
    vm = up.wait(job_id, "RUNNING")["vm"]["name"]
    agent = next(
        p
        for p in up.processes()
        if "agent" in p.cmdline() and vm in p.environ().get("ZEN_VM_DIR", "")
    )
    agent.send_signal(signal.SIGSTOP)
    job = up.wait(job_id, seconds=60)
    assert (job["status"], job["attempt"], job["retries"]["losses"]) == ("SUCCEEDED", 2, 1)
    gone = wait_for(
        "the silent VM gone",
        lambda: next((v for v in up.get("/vms", gone="true")["vms"] if v["name"] == vm), None),
    )
    assert "silent" in gone["reason"]


def test_spot_notice_checkpoints_and_goes_on_elsewhere(up: Stack) -> None:
    """SIGTERM at the notice, a checkpoint, the next attempt resumes; no budget of the user's."""
    script = (
        'if [ -n "$ZEN_RESUME_FROM" ]; then cat $ZEN_RESUME_FROM/at; exit 0; fi; '
        "trap 'echo step-7 > $ZEN_CHECKPOINT_DIR/at; exit 143' TERM; "
        "echo up; while :; do sleep 0.05; done"
    )
    job_id = up.submit("sh", "-c", script, gpu_type="t4", spot=True)
    wait_for("its first line", lambda: up.log(job_id) == "up\n" or None)
    up.zen("sim", "preempt", up.job(job_id)["vm"]["name"])
    job = up.wait(job_id, seconds=60)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2)
    assert job["retries"] == {"failures": 0, "retries": 0, "losses": 0, "preemptions": 1}
    assert up.log(job_id) == "step-7\n"
    events = [e["event"] for e in up.events(job_id)]
    assert events.index("spot_notice") < events.index("spot_taken")


def test_limit_of_a_cluster_holds_and_the_others_say_why_they_wait(up: Stack) -> None:
    """Six jobs, two VMs: four wait with a position and the rule."""
    ids = [up.submit("sleep", "1.5", gpu_type="a100-40gb", gpu_count=2) for _ in range(6)]
    seen = 0
    reasons: set[str] = set()

    def look() -> bool | None:
        nonlocal seen
        alive = len(up.get("/vms", cluster="2xa100-40gb")["vms"])
        seen = max(seen, alive)
        jobs = [up.job(job_id) for job_id in ids]
        reasons.update(job["why"] for job in jobs if job["status"] == "QUEUED")
        return True if all(job["status"] == "SUCCEEDED" for job in jobs) else None

    wait_for("all six done", look, 60)
    assert seen <= 2
    assert any("limit of 2" in why for why in reasons)


def test_idle_vms_are_given_back(up: Stack) -> None:
    """Boots only when there is work; afterwards every VM goes."""
    wait_for("no VM left", lambda: not up.get("/vms")["vms"] or None, 60)

    def at_zero() -> bool | None:
        regions = [r for c in up.get("/clusters")["clusters"] for r in c["regions"]]
        return True if sum(region["target"] for region in regions) == 0 else None

    wait_for("targets at zero", at_zero)


def test_metrics_and_status_speak_of_what_happened(up: Stack) -> None:
    """The names that dashboards rely on."""
    text = httpx.get(f"{up.api}/metrics").text
    for name in ("jobs_total", "queue_size", "gpu_utilization", "scheduling_latency"):
        assert f"gpu_scheduler_{name}" in text
    assert "gpu_scheduler_preemptions_total" in text
    assert up.get("/status")["jobs"]["SUCCEEDED"] > 3
    assert up.get("/ready")["status"] == "ready"
