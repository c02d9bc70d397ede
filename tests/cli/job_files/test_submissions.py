"""From job files to submissions, and every fault with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.job_files.documents import BadFile
from cli.job_files.submissions import check_job_file, read_job_file
from cli.paths import ROOT

FAULTY = """\
nmae: x
gpu_count: 2.5
extnds: base.yaml
environment:
  SEED: ${{ sede }}
parameters:
  seed: 1
comand: [a]
"""


@pytest.mark.parametrize("name", ["train", "sweep", "elastic", "container", "unifiedjob"])
def test_examples_have_no_faults(name: str) -> None:
    assert check_job_file(ROOT / "examples" / f"{name}.yaml", {}) == []


def test_every_fault_has_its_line_and_column(tmp_path: Path) -> None:
    """All of them at once, in the order of the lines; misspelt words with what was meant."""
    file = tmp_path / "job.yaml"
    file.write_text(FAULTY)
    found = [str(fault).removeprefix(f"{file}:") for fault in check_job_file(file, {})]
    assert found[0].startswith("1:1: command")
    assert found[1:] == [
        "1:1: unknown field nmae; did you mean name?",
        "2:12: gpu_count: got 2.5, expected a whole number from 0 to 64",
        "3:1: unknown field extnds; did you mean extends?",
        "5:9: ${{ sede }}: no such parameter; nearest: seed",
        "8:1: unknown field comand; did you mean command?",
    ]


def test_file_of_variables(tmp_path: Path) -> None:
    """Relative to the job file; the file's own environment wins."""
    (tmp_path / "my.env").write_text("A=1\nB=1\n")
    file = tmp_path / "job.yaml"
    file.write_text("env_file: my.env\nenvironment: {A: '2'}\ncommand: [a]\n")
    assert read_job_file(file, {}).bodies[0]["environment"] == {"A": "2", "B": "1"}
    file.write_text("env_file: nosuch.env\ncommand: [a]\n")
    with pytest.raises(BadFile, match=r"job\.yaml:1:11: env_file: nosuch\.env: No such file"):
        read_job_file(file, {})


def test_matrix_makes_several() -> None:
    found = read_job_file(ROOT / "examples" / "sweep.yaml", {"epochs": "9"})
    assert found.matrix
    assert len(found.bodies) == 4
    assert found.bodies[3]["command"][-1] == 'echo "lr 0.001, seed $SEED, 9 epochs"'
    assert "shell" not in found.bodies[0]
