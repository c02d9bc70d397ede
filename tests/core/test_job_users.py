"""Users of jobs, drawn by the scheduler."""

from __future__ import annotations

from dataclasses import replace

from core.job_users import DRAWS, draw_user
from tests.agent.orders import start

SECRET = b"secret"


def test_members_and_attempts_of_a_job_draw_the_same() -> None:
    """They share checkpoints, on whatever VM they are."""
    first = start()
    again = replace(first, vm_name="other", lease_id="l2", attempt=2)
    spec = replace(first.spec, job_id=f"{first.spec.job_id}.3")
    member = replace(first, rank=3, lease_id="l3", spec=spec)
    assert len({draw_user(SECRET, each) for each in (first, again, member)}) == 1


def test_others_draw_others() -> None:
    """Another job, another user, another tenant, another deployment."""
    first = start()
    specs = [
        replace(first.spec, job_id="another"),
        replace(first.spec, user_id="another"),
        replace(first.spec, tenant_id="another"),
    ]
    others = [replace(first, spec=spec) for spec in specs]
    draws = {draw_user(SECRET, each) for each in (first, *others)} | {draw_user(b"b", first)}
    assert len(draws) == 5
    assert all(0 < draw <= DRAWS for draw in draws)
