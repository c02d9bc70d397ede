"""Worlds, clocks and waiting, shared by the tests of the pretend cloud."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from sim.cloud.world import World, parse_world

REGION = "us-central1"
ZONES = ["us-central1-a", "us-central1-b"]


def mig_json(name: str = "zen-mig", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "region": REGION,
        "zones": ZONES,
        "base_instance_name": f"{name}-vm",
        "machine_type": "a2-highgpu-1g",
        "gpus": 1,
        "labels": {"zen": "1"},
        "metadata": {"zen-cluster": "1xa100-40gb", "zen-project": "zen-test", "zen-gpus": "1"},
        **changes,
    }


def world_json(*migs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A world whose times are exact: created after 5 s, booted 10 s later."""
    physics = {
        "create_s": [5, 5],
        "boot_s": [10, 10],
        "stockout_answer_s": 2,
        "retry_s": 20,
        "delete_s": 4,
        "spot_notice_s": 30,
        **changes.pop("physics", {}),
    }
    return {
        "project": "zen-test",
        "seed": 7,
        "migs": list(migs) or [mig_json()],
        "physics": physics,
        **changes,
    }


def make_world(*migs: dict[str, Any], **changes: Any) -> World:
    return parse_world(world_json(*migs, **changes))


async def eventually(condition: Callable[[], object], deadline_s: float = 20.0) -> None:
    """Waits until the condition holds, or fails at the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"did not happen within {deadline_s} s"
        await asyncio.sleep(0.01)


class HandClock:
    """Time that moves only when the test says so."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
