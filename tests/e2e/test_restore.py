"""A database that is restored from a dump: docs/operator/backup.md."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from db.embedded.server import find_binaries
from tests.e2e.stack import Stack, away, stack, wait_for

pytestmark = pytest.mark.slow


def test_a_restored_database_takes_up_the_jobs_of_its_time(tmp_path: Path) -> None:
    """A running job runs on; a job submitted after the dump is unknown, and its VM is deleted."""
    dump = tmp_path / "zen.dump"
    with stack() as up:
        database, binaries = up.run["database"], find_binaries(up.home / "pg" / "pgdata")
        kept, release = up.submit_held(gpu_type="l4")
        up.wait(kept, "RUNNING")
        _call(binaries / "pg_dump", "--format=custom", f"--file={dump}", database)
        later, _ = up.submit_held(gpu_count=2, gpu_type="a100-40gb")
        orphan = up.wait(later, "RUNNING")["vm"]["name"]

        with away(up, "scheduler"):
            how = ("--clean", "--if-exists", "--no-owner", "--single-transaction")
            _call(binaries / "pg_restore", *how, f"--dbname={database}", str(dump))
        wait_for("the API is back", lambda: up.try_get(f"/jobs/{kept}"), 60)

        assert [job["job_id"] for job in up.get("/jobs")["jobs"]] == [kept]
        wait_for("the VM of an unknown job is deleted", lambda: _is_deleted(up, orphan), 60)
        release.touch()
        assert up.wait(kept)["attempt"] == 1


def _call(program: Path, *words: str) -> None:
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _is_deleted(up: Stack, vm: str) -> bool | None:
    """True once it was found in its group and given back; None before."""
    rows = [row for row in up.get("/vms", gone="true")["vms"] if row["name"] == vm]
    return True if any(row["state"] in ("DELETING", "GONE") for row in rows) else None
