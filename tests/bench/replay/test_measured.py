"""Measured times: read from the probe's and the lifetimes' files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.replay.measured import load_lifetimes, load_probe


def _file(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_a_probe_tells_stockouts_from_what_never_works(tmp_path: Path) -> None:
    """An answer within seconds is no stockout; other sizes are other machines."""
    head = "time_utc,zone,gpu_type,num_gpu,event,latency_or_lifetime_s\n"
    rows = ["create_ok,46", "create_ok,46", "create_failed,2", "create_failed,57"]
    rows += ["create_failed,107", "preempted,900", "running,"]
    lines = [f"2020-03-01 10:11:21,z,v100,1,{row}" for row in rows]
    lines.append("2020-03-01 10:11:21,z,v100,8,create_ok,230")
    probe = load_probe(_file(tmp_path, head + "\n".join(lines) + "\n"))
    assert probe.granted.p50_s == 46
    assert probe.refused.p50_s == pytest.approx(82)
    assert probe.lifetimes_s == (900.0,)


def test_a_vm_that_was_stopped_may_have_lived_for_ever(tmp_path: Path) -> None:
    """Only preemptions tell a lifetime."""
    text = "zone,lifetime_s,end\nz,4648.7,preempted\nz,60,stopped\n"
    assert load_lifetimes(_file(tmp_path, text)) == (4648.7, math.inf)
