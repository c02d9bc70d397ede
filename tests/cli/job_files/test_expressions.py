"""Parameters and matrices of job files."""

from __future__ import annotations

from typing import Any

import pytest

from cli.job_files.documents import JobDocument, Place
from cli.job_files.expressions import fill_in, unused


def filled(values: dict[str, Any], **given: str) -> tuple[list[dict[str, Any]], list[str]]:
    document = JobDocument(values, Place("job.yaml", 1, 1))
    jobs = fill_in(document, given)
    return [job.values for job in jobs], [fault.words for fault in document.faults]


def test_parameter_has_the_type_of_its_default() -> None:
    """Alone in a field it stays a number or a flag; in a text, a variable or a word of the command
    it is a text."""
    values = {
        "parameters": {"n": 2, "lr": 0.1, "spot": False, "tag": "a"},
        "gpu_count": "${{ n }}",
        "spot": "${{ params.spot }}",
        "name": "${{ n }}",
        "replicas": {"max": "${{ n }}"},
        "command": ["run", "--lr=${{ lr }}", "${{n}}", "$${{ kept }}"],
    }
    (job,), faults = filled(values, n="4", lr="1e-4", spot="true")
    assert faults == []
    assert job == {
        "gpu_count": 4,
        "spot": True,
        "name": "4",
        "replicas": {"max": 4},
        "command": ["run", "--lr=0.0001", "4", "${{ kept }}"],
    }


def test_one_job_for_each_combination() -> None:
    values = {
        "matrix": {"lr": [1, 2], "seed": ["a", "b"]},
        "name": "${{ matrix.lr }}-${{ matrix.seed }}",
    }
    jobs, faults = filled(values)
    assert [job["name"] for job in jobs] == ["1-a", "1-b", "2-a", "2-b"]
    assert faults == []


@pytest.mark.parametrize(
    ("values", "given", "words"),
    [
        ({"parameters": {"lr": None}}, {}, "parameter lr has no default: say it with -p lr=VALUE"),
        ({"parameters": {"lr": 1}}, {"rl": "2"}, "-p rl: no such parameter; nearest: lr"),
        ({}, {"a": "2"}, "-p a: no such parameter; the file declares none"),
        ({"parameters": {"n": 1}}, {"n": "x"}, "-p n: got 'x', expected a whole number"),
        ({"parameters": {"n": 1.0}}, {"n": "inf"}, "expected a number"),
        ({"parameters": {"n": True}}, {"n": "1"}, "expected true or false"),
        ({"parameters": ["a"]}, {}, "expected names with their defaults"),
        ({"parameters": {"a": [1]}}, {}, "parameters.a: expected one value"),
        ({"name": "${{ nosuch }}"}, {}, "${{ nosuch }}: no such parameter"),
        ({"name": "${{ 1 + 1 }}"}, {}, "expected the name of a parameter, or matrix.NAME"),
        ({"matrix": {"a": []}}, {}, "matrix: expected names, each with a list of values"),
        ({"matrix": {"a": list(range(1001))}}, {}, "1001 combinations, expected at most 1000"),
        ({"matrix": {"a": [1]}, "array": "1-2"}, {}, "not beside matrix"),
    ],
)
def test_faults(values: dict[str, Any], given: dict[str, str], words: str) -> None:
    _, faults = filled(values, **given)
    assert len(faults) == 1
    assert words in faults[0]


def test_matrix_that_nothing_uses() -> None:
    document = JobDocument({"matrix": {"a": [1], "b": [1]}, "name": "${{ matrix.a }}"}, Place("f"))
    assert [fault.words.partition(":")[0] for fault in unused(document)] == ["matrix.b"]
