"""Faults: what is accepted, what is refused, and when they hold."""

import random
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cloud.faults import KINDS, FaultBoard, KnownNames, Stockout, describe, parse_fault
from sim.cloud.parsing import InvalidInput
from sim.cloud.physics import CloudProject
from tests.sim.helpers import REGION, make_world, mig_json

KNOWN = KnownNames(
    regions=frozenset({REGION, "us-west1"}),
    zones=frozenset({"us-central1-a", "us-central1-b", "us-west1-b"}),
    machine_types=frozenset({"a2-highgpu-1g", "g2-standard-4"}),
    metrics=frozenset({"INSTANCES", "NVIDIA_A100_GPUS"}),
    vms=frozenset({"zen-vm-aaaa"}),
)

GOOD: list[dict[str, Any]] = [
    {"kind": "stockout", "zone": "us-central1-a", "machine_type": "*", "for_s": 600},
    {"kind": "stockout", "region": REGION, "machine_type": "a2-highgpu-1g", "spot": True},
    {"kind": "quota", "region": REGION, "metric": "NVIDIA_A100_GPUS", "limit": 0},
    {"kind": "unsupported", "zone": "us-west1-b", "machine_type": "g2-standard-4"},
    {"kind": "address-space", "region": REGION, "after_s": 5},
    {"kind": "permissions", "region": REGION},
    {"kind": "quota", "region": "global", "metric": "GPUS_ALL_REGIONS", "limit": 4},
    {"kind": "operation-error", "region": REGION, "call": "deleteInstances", "code": "X"},
    {"kind": "create-error", "region": REGION, "code": "CONDITION_NOT_MET", "message": "no"},
    {"kind": "slow-boots", "region": REGION, "factor": 3},
    {"kind": "slow-boots", "region": REGION, "seconds": 60},
    {"kind": "api-errors", "region": "*", "rate": 0.2, "kinds": ["429", "500"], "latency_s": 1},
    {"kind": "preempt", "vm": "zen-vm-aaaa"},
    {"kind": "preempt", "zone": "us-central1-a"},
    {"kind": "crash", "vm": "zen-vm-aaaa"},
    {"kind": "maintain", "vm": "zen-vm-aaaa"},
    {"kind": "no-driver", "region": REGION},
    {"kind": "clear", "id": "f1"},
    {"kind": "clear"},
]


@pytest.mark.parametrize("raw", GOOD)
def test_a_fault_is_read_and_described_alike(raw: dict[str, Any]) -> None:
    """What describe() says of a fault sets the same fault again."""
    fault = parse_fault(raw, KNOWN)
    shown = {k: v for k, v in describe(fault).items() if v is not None}
    assert raw.items() <= shown.items()
    assert parse_fault(shown, KNOWN) == fault


def test_every_kind_has_an_example() -> None:
    """The examples above cover all kinds."""
    assert {raw["kind"] for raw in GOOD} == set(KINDS)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"kind": "stockout", "zone": "us-centrl1-a"}, "nearest: us-central1-a"),
        ({"kind": "stockout", "region": "mars"}, "known: us-central1, us-west1"),
        ({"kind": "stockout"}, "either a zone or a region"),
        ({"kind": "stockout", "zone": "us-west1-b", "region": "us-west1"}, "either a zone or"),
        ({"kind": "stockout", "region": REGION, "machine_type": "a2-highgpu-1"}, "a2-highgpu-1g"),
        ({"kind": "stockout", "region": REGION, "for_s": 0}, "for_s: expected a number ≥ 0.001"),
        ({"kind": "quota", "region": REGION, "metric": "NVIDIA_A10_GPUS", "limit": 1}, "A100_GPUS"),
        ({"kind": "quota", "region": REGION, "metric": "INSTANCES"}, "limit: expected a number"),
        ({"kind": "slow-boots", "region": REGION}, "a factor or seconds"),
        ({"kind": "api-errors", "rate": 2}, "rate: expected a number from 0 to 1"),
        ({"kind": "api-errors", "rate": 1, "kinds": ["418"]}, "timeout-after-success"),
        ({"kind": "preempt", "vm": "zen-vm-aaab"}, "nearest: zen-vm-aaaa"),
        ({"kind": "preempt"}, "either a vm or a zone"),
        ({"kind": "crash"}, "vm: expected a VM, got nothing"),
        ({"kind": "clear", "all": True}, "all: unknown field"),
        ({"kind": "explode"}, "expected a kind of fault"),
        ({}, "kind: expected a kind of fault"),
        ([], "expected an object"),
        (None, "expected an object"),
    ],
)
def test_a_bad_fault_is_refused_with_what_exists(raw: object, said: str) -> None:
    """The refusal names the field and the nearest names that exist."""
    with pytest.raises(InvalidInput) as refused:
        parse_fault(raw, KNOWN)
    assert said in str(refused.value)


@given(
    st.dictionaries(
        st.sampled_from(["kind", "zone", "region", "vm", "rate", "kinds", "for_s", "limit"]),
        st.one_of(
            st.sampled_from(sorted(KINDS)), st.none(), st.integers(), st.floats(), st.text("a-1*")
        ),
    )
)
def test_nonsense_is_refused_or_understood(raw: dict[str, object]) -> None:
    """No object whatever makes the parser fail in any way but BadInput."""
    with suppress(InvalidInput):
        assert describe(parse_fault(raw, KNOWN))["kind"] == raw["kind"]


def test_a_fault_holds_from_its_start_to_its_end() -> None:
    """after_s delays it, for_s ends it."""
    board = FaultBoard()
    board.add(Stockout(for_s=10, after_s=5, zone="us-central1-a"), 100.0)

    def out(now: float) -> bool:
        return board.stocked_out("us-central1-a", REGION, "any", False, now)

    assert [out(104.9), out(105.0), out(114.9), out(115.0)] == [False, True, True, False]
    assert board.active(115.0) == ()


@pytest.mark.parametrize(
    ("fault", "hit"),
    [
        (Stockout(zone="us-central1-a"), {("us-central1-a", t, s) for t in "mn" for s in (0, 1)}),
        (Stockout(zone="us-central1-a", machine_type="m", spot=True), {("us-central1-a", "m", 1)}),
        (Stockout(zone="us-central1-b", spot=False), {("us-central1-b", t, 0) for t in "mn"}),
        (
            Stockout(region=REGION, machine_type="n"),
            {(z, "n", s) for z in ("us-central1-a", "us-central1-b") for s in (0, 1)},
        ),
        (Stockout(region="us-west1"), set()),
    ],
)
def test_a_stockout_hits_what_it_names_and_nothing_else(
    fault: Stockout, hit: set[tuple[str, str, int]]
) -> None:
    """Zone or region, machine type, spot or standard: each narrows the stockout."""
    board = FaultBoard()
    board.add(fault, 0.0)
    everything = product(("us-central1-a", "us-central1-b"), "mn", (0, 1))
    assert {p for p in everything if board.stocked_out(p[0], REGION, p[1], bool(p[2]), 1.0)} == hit


def test_clear_ends_one_fault_or_all() -> None:
    """An id that is not active is refused with the active ones."""
    board = FaultBoard()
    ids = [board.add(Stockout(region=REGION), 0.0).id for _ in range(3)]
    assert board.clear(ids[0], 1.0) == (ids[0],)
    with pytest.raises(InvalidInput, match="no active fault 'f1'"):
        board.clear(ids[0], 1.0)
    assert board.clear(None, 1.0) == tuple(ids[1:])
    assert board.active(1.0) == ()


def test_api_errors_strike_at_their_rate() -> None:
    """About the given share of the calls fails, always the same ones for the same dice."""
    board = FaultBoard()
    raw = {"kind": "api-errors", "region": REGION, "rate": 0.2, "kinds": ["500"], "latency_s": 0.5}
    board.add(parse_fault(raw, KNOWN), 0.0)  # type: ignore[arg-type]
    histories = []
    for _ in range(2):
        dice = random.Random(1)
        histories.append([board.api_verdict(REGION, dice, 0.0) for _ in range(1000)])
    assert histories[0] == histories[1]
    assert 150 < sum(v.kind == "500" for v in histories[0]) < 250
    assert all(v.latency_s == 0.5 for v in histories[0])
    assert board.api_verdict("us-west1", random.Random(1), 0.0).latency_s == 0


def test_only_running_spot_vms_can_be_preempted() -> None:
    """Preempting a standard VM, or one that does not run, is refused with a reason."""
    cloud = CloudProject(make_world(mig_json(target_size=1)), 0.0)
    cloud.advance(5.0)
    name = cloud.vms(5.0)[0].info.name
    known = cloud.world.known(cloud.vm_names())
    preempt = parse_fault({"kind": "preempt", "vm": name}, known)
    with pytest.raises(InvalidInput, match="a VM that is RUNNING"):
        cloud.set_fault(preempt, 6.0)
    with pytest.raises(InvalidInput, match="a spot VM"):
        cloud.set_fault(preempt, 20.0)
    crash = parse_fault({"kind": "crash", "vm": name}, known)
    assert cloud.set_fault(crash, 20.0) == (name,)
    with pytest.raises(InvalidInput, match="a VM with power"):
        cloud.set_fault(crash, 20.0)
