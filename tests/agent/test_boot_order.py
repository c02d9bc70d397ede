"""Two boots of one VM within a second: the scheduler can tell which one is later."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.boot_order import FILE, TRIES, issued_at, later_boot
from agent.proofs import WorkerProofs
from core.worker_identity import VmIdentity
from messaging.proofs.enrolment import make_token
from messaging.proofs.keys import WorkerKeys
from tests.workers import proofs

SECOND = 1_800_000_000


class Machine:
    """Tokens of the second that it is; each look at the time lasts a quarter of one."""

    def __init__(self) -> None:
        self.quarters, self.made = 4 * SECOND, 0

    async def prove(self) -> WorkerProofs:
        self.made += 1
        self.quarters += 1
        made = proofs(keys=WorkerKeys.from_seeds(bytes([self.made]) * 32, b"4" * 32))
        me = VmIdentity("project", "us-central1-a", "42", "vm-1", self.quarters // 4)
        made.token = make_token(b"secret", me, made.audience)
        return made

    async def sleep(self, seconds: float) -> None:
        self.quarters += int(4 * seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr("agent.boot_order.asyncio.sleep", made.sleep)
    return made


async def test_second_boot_within_a_second_has_a_later_token(
    machine: Machine, tmp_path: Path
) -> None:
    """And keys that no earlier token names."""
    first = await later_boot(tmp_path / "vm", machine.prove)
    second = await later_boot(tmp_path / "vm", machine.prove)
    assert issued_at(first.token) == SECOND
    assert issued_at(second.token) == SECOND + 1
    assert machine.made == 3
    assert second.audience != first.audience


async def test_later_boot_does_not_wait(machine: Machine, tmp_path: Path) -> None:
    """As boots of machines are."""
    (tmp_path / FILE).write_text(str(SECOND - 1))
    await later_boot(tmp_path, machine.prove)
    assert machine.made == 1


@pytest.mark.parametrize("said", [str(2 * SECOND), "x", ""])
async def test_no_file_keeps_a_vm_from_work(machine: Machine, tmp_path: Path, said: str) -> None:
    """Also one of the future, as after a clock was set back."""
    (tmp_path / FILE).write_text(said)
    await later_boot(tmp_path, machine.prove)
    assert machine.made in (1, TRIES)


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "a.!.c", "a.W10.c", "a.e30.c", "a.bnVsbA.c"])
def test_what_is_no_token_says_no_time(token: str) -> None:
    """The VM's cloud vouches for nothing."""
    assert issued_at(token) is None


def test_time_of_a_cloud_token() -> None:
    """A JSON Web Token."""
    assert issued_at("e30.eyJpYXQiOiAxN30.x") == 17
