"""`python -m agent` as a process, between a metadata server and a real bus."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from agent.state_machine import SHUT_DOWN_GRACE_S
from core.job_fields import WorkerSpec
from core.messages import ContinueJob, Heartbeat, StartJob, StopJob
from messaging.pubsub import delete_subscription
from stores.base import LogPath
from stores.local import LocalStore
from tests.agent.vm import (
    NAMES,
    VM,
    FakeMetadata,
    Scheduler,
    agent_process,
    gone,
    instance,
    scheduler_on_a_bus,
    until,
)

pytestmark = pytest.mark.slow


@dataclass
class Site:
    """A bus with a scheduler, a metadata server, and where files go."""

    scheduler: Scheduler
    metadata: FakeMetadata
    metadata_host: str
    root: Path

    @asynccontextmanager
    async def agent(self, **environment: str) -> AsyncIterator[psutil.Process]:
        async with agent_process(self.metadata_host, self.root / "vm", **environment) as process:
            yield psutil.Process(process.pid)

    async def run(self, ready: Heartbeat, script: str, lease_id: str = "lease-1") -> StartJob:
        spec = WorkerSpec("j1", user_id="u1", tenant_id="acme", command=(script,), shell=True)
        nonce = ready.boot_nonce
        order = StartJob(VM, nonce, spec, "2xl4", "us-central1", 1, lease_id, (0, 1))
        await self.scheduler.send(order)
        return order

    async def log(self) -> str:
        store = LocalStore(self.root / "store")
        return (await store.read(LogPath("acme", "u1", "j1", 1), 0, 10_000)).data.decode()

    async def first_line(self) -> str:
        async def there() -> bool:
            return "\n" in await self.log()

        await until(there, "a line in the log")
        return (await self.log()).split("\n")[0]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with scheduler_on_a_bus(tmp_path / "bus") as (scheduler, pubsub_host):
        values = instance(
            f"file://{tmp_path}/store", pubsub_host, heartbeat_s=0.5, publish_timeout_s=0.5
        )
        metadata = FakeMetadata(values)
        async with metadata.serve() as host:
            yield Site(scheduler, metadata, host, tmp_path)


async def test_road_of_a_job(site: Site) -> None:
    """READY, start, FOUND_VM, RUNNING, COMPLETED, READY; the log is stored; twice in one boot."""
    hear = site.scheduler.heartbeat
    async with site.agent():
        ready = await hear("READY")
        assert (ready.vm_name, ready.instance_id, ready.zone) == (VM, "4242", "us-central1-a")
        await site.run(ready, "echo hello from $ZEN_JOB_ID")
        claim = await hear("FOUND_VM", "lease-1")
        running = await hear("RUNNING", "lease-1")
        done = await hear("COMPLETED", "lease-1")
        idle = await hear("READY", after=done.seq)
        assert ready.seq < claim.seq < running.seq < done.seq < idle.seq
        assert (done.exit_code, done.attempt, done.job_id, done.user_id) == (0, 1, "j1", "u1")
        assert await site.log() == "hello from j1\n"
        await site.run(ready, "exit 3", "lease-2")
        failed = await hear("FAILED", "lease-2")
        assert (failed.exit_code, failed.reason) == (3, "exit code 3")


async def test_agent_is_light(site: Site) -> None:
    """The agent loads nothing heavy, and stays under 90 MB while idle."""
    async with site.agent() as agent:
        await site.scheduler.heartbeat("READY")
        assert agent.memory_info().rss < 90 * 2**20
        maps = {Path(m.path).name for m in agent.memory_maps()}
        assert not any("pydantic" in name or "psycopg" in name for name in maps)


async def test_stop(site: Site) -> None:
    """A stop over the bus ends the job within its grace and is told as STOPPED."""
    async with site.agent():
        ready = await site.scheduler.heartbeat("READY")
        await site.run(ready, "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
        await site.first_line()
        nonce = ready.boot_nonce
        await site.scheduler.send(StopJob(VM, nonce, "j1", "u1", 1, "lease-1", 30.0, "user"))
        stopped = await site.scheduler.heartbeat("STOPPED", "lease-1")
        assert stopped.reason == "user; exit code 0"


async def test_killed_agent_takes_its_jobs_along(site: Site) -> None:
    """SIGKILL of the agent ends the job, its children and its deserters within moments."""
    async with site.agent() as agent:
        ready = await site.scheduler.heartbeat("READY")
        await site.run(ready, "sleep 999 & A=$!; setsid sleep 999 & echo $$ $A $!; wait")
        pids = [int(pid) for pid in (await site.first_line()).split()]
        agent.kill()
        await until(lambda: all(gone(pid) for pid in pids), "all are dead")


async def test_parent_gone(site: Site) -> None:
    """When the other end of ZEN_PARENT_FD closes, job and agent end."""
    ours, theirs = os.pipe()
    os.set_inheritable(ours, True)
    values = {**os.environ, "ZEN_PARENT_FD": str(ours)}
    process = psutil.Popen(
        [sys.executable, "-m", "agent"],
        env={
            **values,
            "GCE_METADATA_HOST": site.metadata_host,
            "ZEN_VM_DIR": str(site.root / "vm"),
        },
        cwd=Path(__file__).parents[2],
        pass_fds=(ours,),
    )
    os.close(ours)
    ready = await site.scheduler.heartbeat("READY")
    await site.run(ready, "echo $$; exec sleep 999")
    job = int(await site.first_line())
    os.close(theirs)
    await until(lambda: process.poll() == 11, "the agent exits with its code for this")
    await until(lambda: gone(job), "the job is dead")


async def test_sigterm_is_clean(site: Site) -> None:
    """SIGTERM ends the job, reports it and exits with 0; no subscription is removed by it."""
    async with agent_process(site.metadata_host, site.root / "vm") as agent:
        ready = await site.scheduler.heartbeat("READY")
        await site.run(ready, "echo up; exec sleep 999")
        await site.first_line()
        agent.send_signal(signal.SIGTERM)
        stopped = await site.scheduler.heartbeat("STOPPED", "lease-1")
        assert stopped.reason == "agent shut down: SIGTERM; killed by SIGTERM"
        assert await agent.wait() == 0
    bus = site.scheduler.bus
    left = await bus.subscriber.list_subscriptions(project=f"projects/{bus.project}")
    names = [subscription.name async for subscription in left]
    own = NAMES.control_subscription(VM, ready.boot_nonce)
    wanted = [own, NAMES.heartbeat_subscription]
    assert sorted(names) == sorted(map(bus.subscription_path, wanted))


async def test_preemption_notice(site: Site) -> None:
    """`preempted` in the metadata: PREEMPTED for the VM, SIGTERM, PREEMPTED for the job's end."""
    async with site.agent():
        ready = await site.scheduler.heartbeat("READY")
        trap = "trap 'echo saved; exit 9' TERM; echo up; while :; do sleep 0.05; done"
        await site.run(ready, trap)
        await site.first_line()
        await site.metadata.put("instance/preempted", "TRUE")
        assert (await site.scheduler.heartbeat("PREEMPTED")).boot_nonce == ready.boot_nonce
        end = await site.scheduler.heartbeat("PREEMPTED", "lease-1")
        assert (end.job_id, end.reason) == ("j1", "preempted; exit code 9")
        assert "saved" in await site.log()


async def test_sigterm_of_a_reclaimed_vm_leaves_the_job_its_notice(site: Site) -> None:
    """systemd's SIGTERM comes with the notice, perhaps before we have read it: the job may use more
    than the few seconds that an agent alone would have, and its end is an interruption."""
    async with agent_process(site.metadata_host, site.root / "vm") as agent:
        ready = await site.scheduler.heartbeat("READY")
        save = f"sleep {SHUT_DOWN_GRACE_S + 1}; echo saved; exit 9"
        await site.run(ready, f"trap '{save}' TERM; echo up; while :; do sleep 0.05; done")
        await site.first_line()
        site.metadata.values["instance/preempted"] = "TRUE"  # nobody is told
        agent.send_signal(signal.SIGTERM)
        end = await site.scheduler.heartbeat("PREEMPTED", "lease-1")
        assert (end.job_id, end.reason) == ("j1", "preempted; exit code 9")
        assert "saved" in await site.log()
        assert await agent.wait() == 0


async def test_a_real_vm_without_its_gpus_is_not_ready(site: Site) -> None:
    """Metadata that does not say that the GPUs are pretended: without a driver no READY is said,
    but what is missing."""
    del site.metadata.values["instance/attributes/zen-pretend-gpus"]
    async with agent_process(site.metadata_host, site.root / "vm", ZEN_DRIVER_WAIT_S="0"):
        said = await site.scheduler.heartbeat("UNREADY")
        assert "NVIDIA driver" in said.reason
        assert [
            heartbeat.status
            for heartbeat in site.scheduler.heartbeats
            if heartbeat.status == "READY"
        ] == []


async def test_bus_outage_freezes_the_job(site: Site) -> None:
    """Without the bus the job stands still; back again it says FROZEN and goes on at `continue`."""
    site.metadata.values["instance/attributes/zen-timers"] = (
        '{"heartbeat_s": 0.4, "publish_timeout_s": 0.4, "self_stop_after_s": 2.0}'
    )
    hear = site.scheduler.heartbeat
    async with site.agent():
        ready = await hear("READY")
        await site.run(ready, "echo $$; exec sleep 999")
        job = psutil.Process(int(await site.first_line()))
        await hear("RUNNING", "lease-1")
        await site.scheduler.bus_goes_away()
        await until(lambda: job.status() == psutil.STATUS_STOPPED, "the job stands still")
        await site.scheduler.bus_comes_back()
        # The first may have been made while the bus was away: an answer to it would be stale.
        frozen = await hear("FROZEN", "lease-1")
        again = await hear("FROZEN", "lease-1", after=frozen.seq)
        assert job.status() == psutil.STATUS_STOPPED
        nonce = ready.boot_nonce
        await site.scheduler.send(ContinueJob(VM, nonce, "j1", "u1", 1, "lease-1", again.seq))
        await hear("RUNNING", "lease-1", after=again.seq)
        await until(lambda: job.status() != psutil.STATUS_STOPPED, "the job goes on")


async def test_hung_agent_does_not_leave_its_job_computing(site: Site) -> None:
    """While the agent hangs its job freezes in time; back again it says FROZEN, and the job goes
    on at `continue` only."""
    site.metadata.values["instance/attributes/zen-timers"] = (
        '{"heartbeat_s": 0.2, "publish_timeout_s": 0.2, "self_stop_after_s": 1.0}'
    )
    hear = site.scheduler.heartbeat
    async with site.agent() as agent:
        ready = await hear("READY")
        await site.run(ready, "echo $$; exec sleep 999")
        job = psutil.Process(int(await site.first_line()))
        await hear("RUNNING", "lease-1")
        agent.suspend()
        try:
            await until(lambda: job.status() == psutil.STATUS_STOPPED, "the job stands still")
        finally:
            agent.resume()
        frozen = await hear("FROZEN", "lease-1")
        again = await hear("FROZEN", "lease-1", after=frozen.seq)
        assert job.status() == psutil.STATUS_STOPPED, "heartbeats alone do not thaw it"
        nonce = ready.boot_nonce
        await site.scheduler.send(ContinueJob(VM, nonce, "j1", "u1", 1, "lease-1", again.seq))
        await hear("RUNNING", "lease-1", after=again.seq)
        await until(lambda: job.status() != psutil.STATUS_STOPPED, "the job goes on")


async def test_a_lost_subscription_is_asked_for_again(site: Site) -> None:
    """If somebody deletes the control subscription, the agent introduces itself anew and hears
    again."""
    async with site.agent():
        ready = await site.scheduler.heartbeat("READY")
        bus = site.scheduler.bus
        name = NAMES.control_subscription(VM, ready.boot_nonce)
        assert await delete_subscription(bus, name)

        async def there() -> bool:
            found = await bus.subscriber.list_subscriptions(project=f"projects/{bus.project}")
            return bus.subscription_path(name) in [item.name async for item in found]

        await until(there, "the subscription is back")
        await site.run(ready, "true")
        await site.scheduler.heartbeat("COMPLETED", "lease-1")


async def test_idle_power_off(site: Site) -> None:
    """A pretend VM that is left alone ends with the exit code of a power-off."""
    site.metadata.values["instance/attributes/zen-timers"] = '{"agent_idle_off_s": 0.3}'
    async with agent_process(site.metadata_host, site.root / "vm") as agent:
        assert await agent.wait() == 10


async def test_bad_settings_are_all_told(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    """Missing metadata is one error that names everything that is missing."""
    for name in ("zen-store", "zen-cluster"):
        del site.metadata.values[f"instance/attributes/{name}"]
    async with agent_process(site.metadata_host, site.root / "vm") as agent:
        assert await agent.wait() == 2
    error = capfd.readouterr().err
    assert "zen-store" in error
    assert "zen-cluster" in error
