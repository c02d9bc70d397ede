"""zen resubmit: a new job from what an old one asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.commands.resubmit import changed
from tests.cli.commands.submissions import Zen
from tests.cli.conftest import refusal

if TYPE_CHECKING:
    from tests.cli.conftest import Api

pytestmark = pytest.mark.usefixtures("accepts")
URL = "/api/v1/jobs/train-7/submission"
OLD = {"command": ["python3", "train.py"], "environment": {"SEED": "1"}, "gpu_count": 2}


def stored(api: Api, hidden: tuple[str, ...] = (), **more: Any) -> None:
    answer = {"job_id": "train-7", "submission": {**OLD, **more}, "hidden": hidden, "array": None}
    api.on("GET", URL, answer)


def test_same_fields_under_another_id(zen: Zen, api: Api) -> None:
    stored(api)
    ended = zen("resubmit", "train-7", "--quiet")
    assert (ended.code, ended.out) == (0, "j-1\n")
    assert api.body() == OLD


def test_fields_are_changed(zen: Zen, api: Api) -> None:
    """A variable, a number, a list, a field that goes; a text that looks like a number stays one
    where the field wants a text."""
    stored(api, retries=1)
    words = ["environment.SEED=7", "gpu_count=4", 'regions=["us-west1"]', "retries=", "name=12"]
    zen("resubmit", "train-7", *(word for one in words for word in ("--set", one)), "--id", "b")
    expected = {**OLD, "environment": {"SEED": "7"}, "gpu_count": 4, "regions": ["us-west1"]}
    assert api.body() == {**expected, "name": "12", "job_id": "b"}


def test_hidden_values_must_be_said(zen: Zen, api: Api) -> None:
    """Nothing is submitted without a variable that the old job had."""
    stored(api, hidden=("TOKEN",))
    ended = zen("resubmit", "train-7")
    assert ended.code == 1
    assert "--set environment.TOKEN=VALUE" in ended.err
    assert [one.method for one in api.requests] == ["GET"]
    assert zen("resubmit", "train-7", "--set", "environment.TOKEN=x").code == 0
    assert api.body()["environment"] == {"SEED": "1", "TOKEN": "x"}


def test_deadline_that_has_passed_is_left_out(zen: Zen, api: Api) -> None:
    stored(api, deadline="2020-01-01T00:00:00+00:00")
    ended = zen("resubmit", "train-7")
    assert "its deadline has passed" in ended.err
    assert "deadline" not in api.body()


def test_array_is_submitted_as_a_whole(zen: Zen, api: Api) -> None:
    """By the submission of any of its jobs. A group of single jobs has none."""
    api.on("GET", "/api/v1/groups/sweep", {"group": "sweep", "user_id": "0"})
    api.on("GET", "/api/v1/jobs", {"jobs": [{"job_id": "sweep-9"}], "total": 9})
    whole = {"job_id": "sweep-9", "submission": {**OLD, "array": "1-9"}, "hidden": []}
    api.on("GET", "/api/v1/jobs/sweep-9/submission", whole)
    ended = zen("resubmit", "sweep", "--print")
    assert ended.json == {**OLD, "array": "1-9"}
    assert api.query()["whole_array"] == "true"

    def no_array(_: httpx.Request) -> httpx.Response:
        return refusal(400, "bad_input", "no array")

    api.on("GET", "/api/v1/jobs/sweep-9/submission", no_array)
    assert "sweep is a group of single jobs: name one of them" in zen("resubmit", "sweep").err


def test_one_program_takes_the_place_of_another() -> None:
    """Fields that exclude each other."""
    assert changed({"command": ["a"]}, {"script": "b"}) == {"script": "b"}
    assert changed({"gpu_types": ["a", "b"]}, {"gpu_type": "l4"}) == {"gpu_type": "l4"}
