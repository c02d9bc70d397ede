"""An attempt stores with its own token, and never with the VM's account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.events import GiveTokens, StartProcess
from core.job_tokens import AccessToken, TokenKind
from core.messages import GoJob, RenewTokens
from sim.cloud.access_tokens import Boundary, TokenGrant
from stores.gcs import GcsStore
from tests.agent.orders import ME, Bench, start
from tests.agent.runner_rig import RunnerRig
from tests.sim.cloud.google import SCHEDULER, Google, google

NEW = {TokenKind.STORE: AccessToken("new", 9.0)}
RENEWAL = RenewTokens(ME.vm_name, ME.boot_nonce, "job-l1", "u1", 1, "l1", "acme", NEW)


def test_new_tokens_reach_the_attempt_that_they_are_for() -> None:
    bench = Bench()
    bench.hear(start())
    assert GiveTokens("l1", NEW) in bench.hear(RENEWAL)
    assert not bench.hear(replace(RENEWAL, lease_id="l2"))
    assert not bench.hear(replace(RENEWAL, boot_nonce="older"))


def test_a_job_at_the_barrier_begins_with_the_newest() -> None:
    bench = Bench()
    bench.hear(replace(start(), barrier=True, tokens={TokenKind.STORE: AccessToken("old", 1.0)}))
    assert not [out for out in bench.hear(RENEWAL) if isinstance(out, GiveTokens)]
    go = GoJob(ME.vm_name, ME.boot_nonce, "job-l1", "u1", 1, "l1")
    (begun,) = [out for out in bench.hear(go) if isinstance(out, StartProcess)]
    assert begun.order.tokens == NEW


@pytest.fixture
async def cloud(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Google]:
    async with google(monkeypatch) as served:
        yield served


def token_for(cloud: Google, job_id: str) -> AccessToken:
    """As the scheduler would have it minted for attempt 1."""
    names = [f"{kind}/acme/u1/{job_id}/1/" for kind in ("logs", "artifacts")]
    names.append(f"checkpoints/acme/u1/{job_id}/")
    whole = tuple(f"projects/_/buckets/bucket/objects/{name}" for name in names)
    ends_at = cloud.clock() + 60
    grant = TokenGrant(SCHEDULER, ends_at, (Boundary("bucket", whole, tuple(names)),))
    return AccessToken(cloud.tokens.issue(grant), ends_at)


def _touch_in(jobs: Path) -> None:
    (work,) = jobs.glob("*/work")
    (work / "go").touch()


async def test_its_log_and_outputs_are_stored_with_its_token(cloud: Google, tmp_path: Path) -> None:
    """Renewed while it runs: the first one has ended by its end."""
    store = GcsStore("bucket", "", retry_first_s=0.01)
    rig = RunnerRig(tmp_path, store=store)
    first = token_for(cloud, "j1")
    script = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; echo x >$ZEN_OUTPUT_DIR/f"
    rig.start(script, tokens={TokenKind.STORE: first})
    await rig.said("one")
    cloud.clock.pass_s(61)
    rig.runner.give("lease-1", {TokenKind.STORE: token_for(cloud, "j1")})
    _touch_in(tmp_path / "vm" / "jobs")
    ended = await rig.end()
    assert (ended.exit_code, await rig.log()) == (0, "one\ntwo\n")
    assert ("bucket", "artifacts/acme/u1/j1/1/files/f") in cloud.storage.objects
    assert rig.runner._tokens == {}
    await store.close()


async def test_anothers_token_is_refused_and_the_vms_account_not_tried(
    cloud: Google, tmp_path: Path
) -> None:
    """The scheduler's account, which google-auth would find here, could store it."""
    rig = RunnerRig(tmp_path, store=GcsStore("bucket", "", retry_first_s=0.01))
    rig.start("echo x >$ZEN_OUTPUT_DIR/f", tokens={TokenKind.STORE: token_for(cloud, "j2")})
    ended = await rig.end()
    assert ended.exit_code is None
    assert "HTTP 403" in ended.reason
    assert cloud.storage.objects == {}
    await rig.store.close()
