"""Which introductions are looked at when more come than there is room for."""

from __future__ import annotations

from collections import Counter

from core.messages import Heartbeat, HeartbeatStatus, InMessage, Introduction
from core.worker_identity import WorkerPublicKeys
from scheduler.cycle.heartbeats import ReceivedHeartbeat
from scheduler.cycle.introductions import WAITING_EACH, WAITING_MAX, Applicant, choose
from tests.builders import NOW, vm

KEYS = WorkerPublicKeys(b"s" * 32, b"x" * 32)


def asks(vm_name: str, number: int) -> Applicant:
    introduction = Introduction(KEYS, "token")
    said = Heartbeat(HeartbeatStatus.READY, vm_name, introduction=introduction)
    message = InMessage("ack", f"{vm_name}-{number}", NOW, b"")
    item = ReceivedHeartbeat(said, NOW, message.message_id)
    return Applicant(vm(vm_name), item, introduction, "mig", message)


def no_dice() -> bytes:
    raise AssertionError("there is room for all")


def test_all_wait_where_there_is_room() -> None:
    """No dice are thrown, and they keep their order."""
    asking = [asks("a", 1), asks("b", 1), asks("a", 2)]
    assert choose(asking, {}, no_dice) == asking
    assert choose([], {}, no_dice) == []


def test_dice_decide_who_of_one_vm_waits() -> None:
    """Neither the first nor the last have it better: over many throws each comes as often."""
    asking = [asks("a", number) for number in range(2 * WAITING_EACH)]
    chosen: Counter[str] = Counter()
    for throw in range(200):
        some = choose(asking, {}, lambda throw=throw: throw.to_bytes(4))  # type: ignore[misc]
        assert len(some) == WAITING_EACH
        chosen.update(applicant.message.message_id for applicant in some)
    assert 60 < chosen["a-0"] < 140
    assert 60 < chosen[f"a-{2 * WAITING_EACH - 1}"] < 140


def test_the_ones_that_wait_already_count() -> None:
    """A VM has WAITING_EACH in all."""
    asking = [asks("a", number) for number in range(10)]
    waiting = {"uid-a": WAITING_EACH - 3}
    assert len(choose(asking, waiting, lambda: b"seed")) == 3
    assert choose(asking, {"uid-a": WAITING_EACH}, lambda: b"seed") == []


def test_vm_with_few_goes_before_vms_with_many() -> None:
    """Where there is room for few, every VM has one before any has two."""
    many = [asks(f"flooded-{each}", number) for each in range(9) for number in range(50)]
    waiting = {f"uid-flooded-{each}": 50 for each in range(9)}
    waiting["uid-far"] = WAITING_MAX - 9 * 50 - 5
    quiet = [asks(f"quiet-{each}", 1) for each in range(5)]
    chosen = choose([*many, *quiet], waiting, lambda: b"seed")
    assert chosen == quiet


def test_nobody_is_chosen_where_there_is_no_room() -> None:
    """WAITING_MAX in all."""
    assert choose([asks("a", 1)], {"uid-b": WAITING_MAX}, lambda: b"seed") == []
