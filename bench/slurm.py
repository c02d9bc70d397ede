"""Slurm on this machine, as a peer: one node, tuned to start at once.

    python -m bench.slurm [--jobs 50] [--drained 200] [--slots 64]

Needs Debian's package slurm-wlm and root. The controller and the node's daemon run in a temporary
directory with a configuration of their own, without accounting, and are gone afterwards.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.figures import tell
from bench.local import ended, scratch, undisturbed, wait_for
from bench.report import figure, quantile, show

SLOTS = 64
"""Processors of the node, one job on each. Slurm launches about once a second: with 8 it drains 8
jobs per second."""
PHASE_S = 0.37
"""Between two starts: else each would meet that period at its worst moment."""
READY_S = 60.0
TOLD = ("p50_ms", "per_s")
CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
SlurmdPort={node_port}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/controller.pid
SlurmdPidFile={directory}/node.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_max_job_start=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots} State=UNKNOWN
PartitionName=p Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def available() -> str | None:
    """What is missing here; None: nothing."""
    programs = ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo")
    if missing := [name for name in programs if shutil.which(name) is None]:
        return f"not installed ({', '.join(missing)}): apt-get install slurm-wlm"
    return None if os.geteuid() == 0 else "root is needed"


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """A running cluster of one node."""

    directory: Path
    environment: dict[str, str]

    def call(self, *words: str) -> str:
        return subprocess.run(
            words, env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    def submit(self, script: Path, *options: str) -> str:
        """The id of the job."""
        output = f"--output={self.directory}/out.%j"
        return self.call("sbatch", "--parsable", output, *options, str(script)).strip()

    def start_ms(self, script: Path) -> float:
        """From before sbatch to the moment that the job itself says."""
        before = time.time()
        file = self.directory / f"out.{self.submit(script)}"

        def said() -> float | None:
            text = file.read_text() if file.exists() else ""
            return float(text) if text.endswith("\n") else None

        return 1000 * (wait_for("a job of Slurm", said, 60) - before)

    def drain_per_s(self, script: Path, count: int) -> float:
        """One array of jobs that do nothing, to the last end."""
        began = time.perf_counter()
        self.submit(script, f"--array=1-{count}")
        wait_for("the end of all jobs", self._is_empty, 30 + count, every_s=0.1)
        return count / (time.perf_counter() - began)

    def _is_empty(self) -> bool | None:
        return None if self.call("squeue", "--noheader").strip() else True


@contextmanager
def slurm_cluster(slots: int) -> Iterator[SlurmCluster]:
    with scratch("zen-slurm-") as directory:
        host = socket.gethostname().partition(".")[0]
        for inner in ("state", "spool"):
            (directory / inner).mkdir()
        file = directory / "slurm.conf"
        port, node_port = _free_port(), _free_port()
        words = {"host": host, "port": port, "node_port": node_port, "slots": slots}
        file.write_text(CONFIGURATION.format(directory=directory, **words))
        cluster = SlurmCluster(directory, {**os.environ, "SLURM_CONF": str(file)})
        programs = (("slurmctld", "-D"), ("slurmd", "-D", "-N", host))
        with (directory / "log").open("wb") as log:
            started = [
                subprocess.Popen(argv, env=cluster.environment, stdout=log, stderr=log)
                for argv in programs
            ]
        try:
            wait_for("an idle node", lambda: _is_idle(cluster), READY_S, every_s=0.2)
            yield cluster
        finally:
            with undisturbed():
                for process in reversed(started):
                    process.terminate()
                for process in started:
                    ended(process)


def _is_idle(cluster: SlurmCluster) -> bool | None:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return True if done.stdout.strip() == "idle" else None


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--drained", type=int, default=200)
    parser.add_argument("--slots", type=int, default=SLOTS, help="jobs at once")
    args = parser.parse_args()
    if missing := available():
        sys.stderr.write(f"{missing}\n")
        return 2
    with slurm_cluster(args.slots) as cluster:
        says, nothing = cluster.directory / "date.sh", cluster.directory / "true.sh"
        says.write_text("#!/bin/sh\ndate +%s.%N\n")
        nothing.write_text("#!/bin/sh\ntrue\n")
        cluster.start_ms(says)
        starts = []
        for number in range(args.jobs):
            time.sleep(number * PHASE_S % 1)
            starts.append(cluster.start_ms(says))
        per_s = cluster.drain_per_s(nothing, args.drained)
    tell(p50_ms=quantile(starts, 0.5), per_s=per_s)
    table = Table("Slurm", "", title=f"{args.jobs} jobs one by one, {args.drained} drained")
    table.add_row("sbatch → the command runs, p50, ms", figure(quantile(starts, 0.5)))
    table.add_row("the same, p99", figure(quantile(starts, 0.99)))
    table.add_row("jobs that do nothing, per second", figure(per_s))
    show(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
