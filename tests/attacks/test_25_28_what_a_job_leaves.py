"""Outputs, status and memory of a hostile job, against a real stack: also where it is not root."""

from __future__ import annotations

import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow
CANNOT_STORE = 74


def ended(up: Stack, script: str, **fields: object) -> dict[str, object]:
    job_id = up.submit("/bin/sh", "-c", script, gpu_type="l4", retries=0, **fields)
    return dict(up.wait(job_id, seconds=120))


def stored(up: Stack, job_id: object) -> list[str]:
    found = (up.home / "store" / "artifacts").rglob(f"*/{job_id}/**/*")
    return [path.name for path in found if path.is_file()]


def test_25_outputs_replaced_by_a_link(up: Stack) -> None:
    """Neither a link in place of the directory nor links in it bring a file of the machine."""
    script = """cd "$ZEN_OUTPUT_DIR"; ln -s /etc/hostname h; ln -s /etc etc; ln -s ../../.. up
        cd /; rm -rf "$ZEN_OUTPUT_DIR" 2>/dev/null && ln -s /etc "$ZEN_OUTPUT_DIR"; true"""
    job = ended(up, script)
    assert set(stored(up, job["job_id"])) <= {"manifest.json"}, job
    assert "hostname" not in up.log(str(job["job_id"]))


def test_26_status_file_replaced_by_a_fifo(up: Stack) -> None:
    """The agent goes on: the job ends by itself, at its first attempt, and so does the next one."""
    for _ in range(2):
        job = ended(up, "rm -f $ZEN_STATUS_FILE; mkfifo $ZEN_STATUS_FILE; sleep 2; exit 3")
        assert (job["status"], job["attempt"], job["exit_code"]) == ("FAILED", 1, 3)


def test_27_memory_is_enforced(up: Stack) -> None:
    """A process that takes more than memory_mb is ended, with a reason that says so."""
    eat = "exec python3 -c 'import time; x = bytearray(600 << 20); time.sleep(30)'"
    job = ended(up, eat, memory_mb=100)
    assert job["status"] == "FAILED", job
    assert "out of memory: memory_mb is 100" in str(job["reason"])


def test_28_sparse_output(up: Stack) -> None:
    """Three gigabytes of nothing are not stored, and the job's owner reads why."""
    job = ended(up, 'truncate -s 3G "$ZEN_OUTPUT_DIR/sparse"')
    assert (job["status"], job["exit_code"]) == ("FAILED", CANNOT_STORE), job
    assert "of holes" in str(job["reason"])
    assert stored(up, job["job_id"]) == []
