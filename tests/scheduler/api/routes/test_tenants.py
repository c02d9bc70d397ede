"""Tenants over REST: create, change, list; what the door refuses; why jobs wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from core.errors import BadInput, PriceNotConfirmed
from core.job import E
from core.job_fields import JobSpec
from core.job_steps import advance
from core.queueing import QueuePolicy, QueueRule, aging_limit_s
from core.tenants import Consent, Quota, Tenant
from scheduler.queue.guaranteed_start import bound_s
from scheduler.submission.submit import Expected, SubmissionPorts, Submissions
from scheduler.submission.tenant_access import TenantAccess, span
from tests.access import known
from tests.scheduler.api.fakes import NOW, RULES, TO_RUNNING, House, HouseSettings

PATH = "/api/v1/tenants"
JOB = {"command": ["true"], "gpu_type": "l4"}
VMS = 4
"""Of the cluster that such a job goes to."""


@pytest.fixture
def house() -> House:
    return House()


async def test_a_tenant_is_made_and_changed(house: House) -> None:
    """Fields that are left out stay; null takes a limit away; the version grows."""
    async with house.client() as client:
        body = {"weight": 2, "quota": {"gpus": 8, "jobs": 4, "gpus_by_type": {"l4": 2}}}
        made = await client.patch(f"{PATH}/vision", json=body)
        assert made.status_code == 201
        changed = await client.patch(
            f"{PATH}/vision", json={"priority_max": 999, "quota": {"jobs": None, "cpus": 1.5}}
        )
        assert changed.status_code == 200
        found = (await client.get(f"{PATH}/vision")).json()
    assert found == changed.json()
    assert (found["weight"], found["priority_max"], found["version"]) == (2.0, 999, 2)
    assert found["priority_class_max"] == "normal"
    assert found["quota"] == {"gpus": 8, "gpus_by_type": {"l4": 2}, "cpus": 1.5}


async def test_every_fault_is_named(house: House) -> None:
    """Where, what came, what was expected; nothing is stored."""
    body = {
        "weight": 0,
        "colour": 1,
        "preemptible": "no",
        "quota": {"gpus": -1, "cpus": "many", "gpus_by_type": {"l4": 0.5}, "disks": 1},
    }
    async with house.client() as client:
        answer = await client.patch(f"{PATH}/-bad", json=body)
        gone = await client.get(f"{PATH}/nobody")
    assert answer.status_code == 422
    fields = {fault["field"] for fault in answer.json()["faults"]}
    assert fields == {
        *("tenant_id", "weight", "colour", "preemptible", "quota.gpus", "quota.cpus"),
        *("quota.gpus_by_type.l4", "quota.disks"),
    }
    assert gone.status_code == 404
    assert list(house.tables.tenants) == ["default"]


async def test_not_found_names_no_tenant_that_the_caller_may_not_see() -> None:
    """The tenant of its grant was never set up: others that sound like it are not told of."""
    key, row = known("viewer000000", ("visoin", "viewer"))
    house = House(keys=(row,))
    house.put_tenant(Tenant("vision"))
    async with house.client(key) as client:
        gone = await client.get(f"{PATH}/visoin")
        other = await client.get(f"{PATH}/vision")
    assert (gone.status_code, other.status_code) == (404, 404)
    assert "vision" not in gone.json()["message"]


async def test_gpu_types_that_no_cluster_has_are_refused(house: House) -> None:
    """With the nearest types; taking such a limit away is possible."""
    house.put_tenant(Tenant("old", quota=Quota(gpus_by_type={"k80": 4})))
    async with house.client() as client:
        answer = await client.patch(f"{PATH}/a", json={"quota": {"gpus_by_type": {"h100": 4}}})
        gone = await client.patch(f"{PATH}/old", json={"quota": {"gpus_by_type": {"k80": None}}})
    assert answer.status_code == 422
    (fault,) = answer.json()["faults"]
    assert (fault["field"], fault["got"]) == ("quota.gpus_by_type", '"h100"')
    assert "nearest: h100-80gb" in fault["expected"]
    assert "a" not in house.tables.tenants
    assert (gone.status_code, gone.json()["quota"]) == (200, {})


async def test_a_tenant_is_deleted(house: House) -> None:
    """Its settings go and no list shows it; its jobs stay. Set up again it begins anew, as new."""
    async with house.client() as client:
        await client.patch(f"{PATH}/vision", json={"weight": 3, "quota": {"gpus": 4}})
        await client.post("/api/v1/jobs", json={**JOB, "job_id": "j", "tenant_id": "vision"})
        await client.delete("/api/v1/jobs/j")
        answer = await client.delete(f"{PATH}/vision")
        assert (answer.status_code, answer.json()["id"]) == (200, "vision")
        assert [t["id"] for t in (await client.get(PATH)).json()["tenants"]] == ["default"]
        for again in (await client.get(f"{PATH}/vision"), await client.delete(f"{PATH}/vision")):
            assert again.status_code == 404
        assert (await client.get("/api/v1/jobs/j")).json()["tenant_id"] == "vision"
        back = await client.patch(f"{PATH}/vision", json={"priority_max": 999})
    assert (back.status_code, back.json()["weight"], back.json()["quota"]) == (201, 1.0, {})


async def test_a_tenant_with_open_jobs_is_not_deleted(house: House) -> None:
    """Nor the default one, whose jobs name no tenant; the answer names a job."""
    async with house.client() as client:
        await client.post("/api/v1/jobs", json={**JOB, "job_id": "j", "tenant_id": "vision"})
        await client.patch(f"{PATH}/vision", json={"weight": 3})
        refused = await client.delete(f"{PATH}/vision")
        default = await client.delete(f"{PATH}/default")
        found = (await client.get(f"{PATH}/vision")).json()
    assert refused.status_code == 409
    assert "has a job that has not ended (e.g. j)" in refused.json()["error"]
    assert (default.status_code, found["weight"]) == (422, 3.0)


async def test_the_list_shows_use_beside_limits(house: House) -> None:
    """What jobs hold now, by resource; the default tenant needs no set-up."""
    async with house.client() as client:
        await client.post("/api/v1/jobs", json=JOB)
        (job,) = house.jobs.values()
        house.tables.set_job(advance(job, E.ADMITTED, NOW, RULES))
        (found,) = (await client.get(PATH)).json()["tenants"]
    used = {limit["resource"]: limit["used"] for limit in found["limits"]}
    assert found["tenant_id"] == "default"
    assert (used["jobs"], used["gpus"], used["gpus:l4"], used["cpus"]) == (1, 1, 1, 12)


def door(
    house: House,
    *,
    strict: bool = False,
    confirm: float | None = None,
    expected: Expected = lambda _, __: None,
) -> Submissions:
    clock = house.clock
    house.door = {"create_tenants": not strict, "confirm_above_usd_per_hour": confirm}
    services, settings = house.services(), HouseSettings(house)
    return Submissions(
        SubmissionPorts(house.store.write, house.store, clock, services.ids),
        settings,
        door=TenantAccess(house.store, settings, clock),
        expected=expected,
    )


@pytest.mark.parametrize(
    ("tenant", "job", "words"),
    [
        (
            Tenant("a", quota=Quota(gpus=1)),
            {"gpu_type": "a100-40gb", "gpu_count": 2},
            "gpu_count: got 2 GPUs, expected at most 1 GPUs, the quota of tenant a (0 in use)",
        ),
        (
            Tenant("a", quota=Quota(jobs=0)),
            {"gpu_type": "l4"},
            (
                "tenant_id: got 1 jobs at once, "
                "expected at most 0 jobs at once, the quota of tenant a (0 in use)"
            ),
        ),
        (
            Tenant("a", priority_max=999),
            {"priority": 2000},
            "priority: got 2000, expected at most 999, the cap of tenant a",
        ),
    ],
)
async def test_what_can_never_run_is_refused_at_the_door(
    house: House, tenant: Tenant, job: dict[str, object], words: str
) -> None:
    """With what was asked for, the quota, and what is in use."""
    house.put_tenant(tenant)
    body = {"command": ["true"], "tenant_id": "a", **job}
    with pytest.raises(BadInput) as caught:
        await door(house).submit(body, idempotency_key=None)
    assert [str(fault) for fault in caught.value.faults] == [words]


async def test_a_strict_door_knows_its_tenants(house: House) -> None:
    """A name that nobody has set up is refused; the default tenant always exists."""
    strict = door(house, strict=True)
    with pytest.raises(BadInput, match="a tenant that was set up"):
        await strict.submit({**JOB, "tenant_id": "defualt"}, idempotency_key=None)
    assert (await strict.submit(JOB, idempotency_key=None)).cluster == "1xl4"


async def test_a_new_tenant_is_told_to_be_new(house: House) -> None:
    """Where submissions may bring tenants, the first one of each says so."""
    first = await door(house).submit({**JOB, "tenant_id": "blue"}, idempotency_key=None)
    again = await door(house).submit({**JOB, "tenant_id": "blue"}, idempotency_key=None)
    assert (first.new_tenant, again.new_tenant) == (True, False)
    assert not (await door(house).submit(JOB, idempotency_key=None)).new_tenant


async def test_a_tenant_agrees_for_jobs_that_say_nothing(house: House) -> None:
    """Spot and larger VMs by the tenant's default; a job's own word wins. A repeat is the same
    submission, whatever the tenant agrees to meanwhile."""
    spot = replace(house.clusters[0], name="1xl4-spot", spot=True)
    house.clusters = (*house.clusters, spot)
    body = {"command": ["true"], "tenant_id": "a", "gpu_type": "l4", "job_id": "j"}
    assert (await door(house).submit(body, idempotency_key=None)).cluster == "1xl4"
    house.put_tenant(Tenant("a", consent=Consent(spot=True, allow_larger=True)))
    assert (await door(house).submit(body, idempotency_key=None)).repeated
    named = [{**body, "job_id": "k"}, {**body, "job_id": "l", "spot": False}]
    taken = [(await door(house).submit(one, idempotency_key=None)).cluster for one in named]
    assert taken == ["1xl4-spot", "1xl4"]
    three = {**body, "job_id": "m", "gpu_type": "a100-40gb", "gpu_count": 3, "spot": False}
    assert (await door(house).submit(three, idempotency_key=None)).cluster == "4xa100-40gb"
    assert house.jobs["0", "m"].spec.allow_larger is True


async def test_a_dear_submission_is_confirmed(house: House) -> None:
    """Above the limit of the configuration, or of its tenant: by the caller who has seen the price,
    or by the job's own limit. Nothing is stored before."""
    dear = {"command": ["true"], "gpu_type": "a100-40gb", "gpu_count": 2, "replicas": 2}
    asks = door(house, confirm=10.0)
    with pytest.raises(PriceNotConfirmed) as caught:
        await asks.submit(dear, idempotency_key=None)
    assert (caught.value.usd_per_hour, house.jobs) == (16.8, {})
    assert "--yes" in str(caught.value)
    with pytest.raises(PriceNotConfirmed):
        await asks.submit(dear, idempotency_key=None, confirmed_usd_per_hour=16.0)
    await asks.submit(dear, idempotency_key=None, confirmed_usd_per_hour=16.8)
    await asks.submit({**dear, "max_usd_per_hour": 8.4}, idempotency_key=None)
    await asks.submit(JOB, idempotency_key=None)
    rich = Tenant("rich", consent=Consent(confirm_above_usd_per_hour=50.0))
    house.put_tenant(rich)
    told = await asks.submit({**dear, "tenant_id": "rich"}, idempotency_key=None)
    assert house.jobs["0", told.job_id].spec.agreed_usd_per_hour == 25.0


async def test_a_repeat_of_a_dear_submission_is_answered(house: House) -> None:
    """It was confirmed once."""
    dear = {"command": ["true"], "gpu_type": "a100-40gb", "gpu_count": 2, "job_id": "j"}
    asks = door(house, confirm=1.0)
    first = await asks.submit(dear, idempotency_key=None, confirmed_usd_per_hour=99.0)
    again = await asks.submit(dear, idempotency_key=None)
    assert (again.repeated, again.job_id) == (True, first.job_id)


async def test_the_bound_is_told_at_submission(house: House) -> None:
    """As a number, computed from the rule; strict priority has none."""
    told = await door(house).submit(JOB, idempotency_key=None)
    calm_s, week = aging_limit_s(JobSpec("j"), 0.0, QueuePolicy()), RULES.timers.max_runtime_s
    assert told.starvation_bound_s == bound_s(calm_s, week, 0, VMS)
    (job,) = house.jobs.values()
    assert job.starts_by == NOW + timedelta(seconds=told.starvation_bound_s)
    assert house.timeline(job)[0].data["starvation_bound_s"] == told.starvation_bound_s
    house.clusters = tuple(replace(c, queue=QueueRule.PRIORITY) for c in house.clusters)
    told = await door(house).submit(JOB, idempotency_key=None)
    assert told.starvation_bound_s is None


async def test_what_is_expected_of_a_job_makes_its_bound(house: House) -> None:
    """One whose like runs for hours waits longer, and is told so; a repeat is told the same."""
    hours = 5 * 3600.0
    known = door(house, expected=lambda spec, _: hours if spec.name == "train" else None)
    long = await known.submit({**JOB, "job_id": "a", "name": "train"}, idempotency_key=None)
    again = await known.submit({**JOB, "job_id": "a", "name": "train"}, idempotency_key=None)
    short = await known.submit(JOB, idempotency_key=None)
    calm_s, week = (
        aging_limit_s(JobSpec("a"), 0.0, QueuePolicy(), hours),
        RULES.timers.max_runtime_s,
    )
    assert long.starvation_bound_s == bound_s(calm_s, week, 0, VMS)
    calm_s = aging_limit_s(JobSpec("j"), 0.0, QueuePolicy())
    assert short.starvation_bound_s == bound_s(calm_s, week, 1, VMS)
    assert again == long


async def test_all_of_an_array_are_told_the_bound_of_the_last(house: House) -> None:
    """They are alike, and any of them may be the last; a gang's members do not wait for each
    other."""
    await door(house).submit({**JOB, "job_id": "many", "array": "1-30"}, idempotency_key=None)
    calm_s, week = aging_limit_s(JobSpec("j"), 0.0, QueuePolicy()), RULES.timers.max_runtime_s
    latest = NOW + timedelta(seconds=bound_s(calm_s, week, 29, VMS))
    assert {job.starts_by for job in house.jobs.values()} == {latest}
    await door(house).submit({**JOB, "job_id": "gang", "replicas": 4}, idempotency_key=None)
    latest = NOW + timedelta(seconds=bound_s(calm_s, week, 30, VMS))
    gang = {job.starts_by for job in house.jobs.values() if job.gang is not None}
    assert gang == {latest}


async def test_a_job_far_behind_is_told_its_rule(house: House) -> None:
    """Nobody has looked at it yet: its quota is named when somebody asks; one that is next waits
    for the next cycle to say it."""
    async with house.client() as client:
        await client.post("/api/v1/jobs", json={**JOB, "job_id": "one", "tenant_id": "a"})
        await client.post("/api/v1/jobs", json={**JOB, "job_id": "two", "tenant_id": "a"})
        house.move("one", *TO_RUNNING)
        house.put_tenant(Tenant("a", quota=Quota(jobs=1)))
        found = (await client.get("/api/v1/jobs/two")).json()
        house.put_tenant(Tenant("a"))
        new = (await client.get("/api/v1/jobs/two")).json()
        house.queue_before(6, house.jobs["0", "two"].spec)
        behind = (await client.get("/api/v1/jobs/two")).json()
    words = "quota of tenant a: asks for 1 jobs at once, the quota is 1, 1 in use; it starts as"
    assert found["why"].startswith(words)
    assert new["why"] == ""
    assert behind["why"].startswith("other jobs for cluster 1xl4 are ahead")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(90, "90 s"), (3600, "60 min"), (72000, "20 h"), (9990, "2 h 46 min"), (273600, "3 d 4 h")],
)
def test_spans(seconds: float, words: str) -> None:
    """As people say them."""
    assert span(seconds) == words


async def test_tenants_are_listed_in_pages(house: House) -> None:
    """By name; each page says where the next one begins, the last one that it is the last."""
    async with house.client() as client:
        for name in ("c", "a", "b"):
            await client.patch(f"{PATH}/{name}", json={})
        first = (await client.get(PATH, params={"page_size": 2})).json()
        rest = (await client.get(PATH, params={"after": first["next_after"]})).json()
    names = [[tenant["id"] for tenant in page["tenants"]] for page in (first, rest)]
    assert names == [["a", "b"], ["c", "default"]]
    assert [page["total"] for page in (first, rest)] == [4, 4]
    assert [page["next_after"] for page in (first, rest)] == ["b", None]
