"""The physics alone: time is an argument, so hours take milliseconds."""

from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.cloud.faults import Crash, Maintain, NoDriver, Preempt, SlowBoots, Stockout
from sim.cloud.model import ApiError, EffectKind, InstanceStatus
from sim.cloud.operations import OPERATIONS_KEPT
from sim.cloud.physics import CloudProject
from sim.cloud.world import World
from tests.sim.helpers import REGION, ZONES, make_world, mig_json

MIG = "zen-mig"


def up(world: World, *names: str) -> CloudProject:
    cloud = CloudProject(world, 0.0)
    cloud.create_instances(REGION, MIG, names, None, 0.0)
    cloud.advance(15.0)
    return cloud


def test_power_follows_the_vm() -> None:
    """A VM gets power when it is RUNNING and loses it when its deletion ends, at the exact time."""
    cloud = CloudProject(make_world(), 0.0)
    cloud.create_instances(REGION, MIG, ["a"], None, 0.0)
    effects = cloud.advance(20.0)
    assert [(e.kind, e.vm.name, e.at) for e in effects] == [(EffectKind.POWER_ON, "a", 15.0)]
    cloud.delete_instances(
        REGION, MIG, [f"zones/{effects[0].vm.zone}/instances/a"], False, None, 30
    )
    effects = cloud.advance(60.0)
    assert [(e.kind, e.vm.name, e.at) for e in effects] == [
        (EffectKind.SOFT_OFF, "a", 30.0),
        (EffectKind.POWER_OFF, "a", 34.0),
    ]
    assert cloud.next_event_at() is None


def test_project_carries_only_so_many_vms() -> None:
    """The machine below binds all groups together; what leaves makes room."""
    raw = make_world().physics
    world = replace(make_world(mig_json(), mig_json("other")), physics=replace(raw, vms_max=2))
    cloud = up(world, "a", "b")
    cloud.create_instances(REGION, "other", ["c"], None, 15.0)
    cloud.advance(60.0)
    (waiting,) = cloud.mig(REGION, "other", 60.0).members.values()
    assert waiting.vm is None
    failure = waiting.failure
    assert failure is not None
    assert failure.code == "QUOTA_EXCEEDED"
    assert "carries no more" in failure.message
    cloud.delete_instances(REGION, MIG, [cloud_url(cloud, "a")], False, None, 61.0)
    cloud.advance(200.0)
    (arrived,) = cloud.mig(REGION, "other", 200.0).members.values()
    assert arrived.vm is not None


def cloud_url(cloud: CloudProject, name: str) -> str:
    zone = next(v.info.zone for v in cloud.vms(60.0) if v.info.name == name)
    return f"zones/{zone}/instances/{name}"


def test_preemption_warns_before_it_strikes() -> None:
    """Without a notice period the soft off comes with the notice; the power goes spot_notice_s
    later."""
    cloud = up(make_world(mig_json(spot=True)), "a")
    assert cloud.set_fault(Preempt(vm="a"), 20.0) == ("a",)
    assert cloud.next_event_at() == 20.0
    effects = cloud.advance(100.0)
    assert [(e.kind, e.at) for e in effects] == [
        (EffectKind.SPOT_NOTICE, 20.0),
        (EffectKind.SOFT_OFF, 20.0),
        (EffectKind.POWER_OFF, 50.0),
    ]


def test_a_template_may_ask_for_notice_before_the_soft_off() -> None:
    """preemptionNoticeDuration: the VM runs on for so long after the notice, and is hit once."""
    cloud = up(make_world(mig_json(spot=True, preemption_notice_s=120.0)), "a")
    cloud.set_fault(Preempt(vm="a"), 20.0)
    assert cloud.vms(20.0)[0].status is InstanceStatus.RUNNING
    assert cloud.set_fault(Preempt(zone=cloud.vms(30.0)[0].info.zone), 30.0) == ()
    effects = cloud.advance(300.0)
    assert [(e.kind, e.at) for e in effects] == [
        (EffectKind.SPOT_NOTICE, 20.0),
        (EffectKind.SOFT_OFF, 140.0),
        (EffectKind.POWER_OFF, 170.0),
    ]


def test_maintenance_is_told_long_before_the_vm_is_stopped() -> None:
    """A VM with GPUs cannot move to another host: notice, an hour later the soft off."""
    cloud = up(make_world(), "a")
    assert cloud.set_fault(Maintain("a"), 20.0) == ("a",)
    effects = cloud.advance(4000.0)
    assert [(e.kind, e.at) for e in effects] == [
        (EffectKind.MAINTENANCE_NOTICE, 20.0),
        (EffectKind.SOFT_OFF, 3620.0),
        (EffectKind.POWER_OFF, 3624.0),
    ]


def test_a_bad_image_brings_up_vms_without_a_driver() -> None:
    """VMs that are made while the fault holds; the others keep theirs."""
    cloud = up(make_world(), "a")
    cloud.set_fault(NoDriver(region=REGION), 20.0)
    cloud.create_instances(REGION, MIG, ["b"], None, 20.0)
    cloud.advance(60.0)
    assert {v.info.name: v.info.driver for v in cloud.vms(60.0)} == {"a": True, "b": False}


def test_a_deletion_is_a_soft_off_first() -> None:
    """Of a VM that runs: its guest is told, once, before the power goes."""
    cloud = up(make_world(), "a")
    cloud.delete_instances(REGION, MIG, [cloud_url(cloud, "a")], False, None, 61.0)
    effects = cloud.advance(200.0)
    assert [e.kind for e in effects] == [EffectKind.SOFT_OFF, EffectKind.POWER_OFF]


def test_preempting_a_zone_takes_its_spot_vms_only() -> None:
    """All spot VMs of the zone are hit; standard VMs and other zones are not."""
    world = make_world(mig_json(spot=True), mig_json("standard"))
    cloud = up(world, *"abcdef")
    cloud.create_instances(REGION, "standard", ["s"], None, 15.0)
    cloud.advance(40.0)
    here = {v.info.name for v in cloud.vms(40.0) if v.info.zone == ZONES[0] and v.info.spot}
    hit = cloud.set_fault(Preempt(zone=ZONES[0]), 40.0)
    assert isinstance(hit, tuple)
    assert set(hit) == here != set()


def test_crash_cuts_power_without_notice() -> None:
    """A crash is a PowerOff and nothing before it."""
    cloud = up(make_world(), "a")
    cloud.set_fault(Crash("a"), 20.0)
    assert [e.kind for e in cloud.advance(20.0)] == [EffectKind.POWER_OFF]
    assert cloud.vms(20.0)[0].status is InstanceStatus.TERMINATED


def test_guest_shutdown_terminates_and_late_news_changes_nothing() -> None:
    """A guest that shuts down leaves a TERMINATED VM; telling it twice is harmless."""
    cloud = up(make_world(), "a")
    vm = cloud.vms(15.0)[0]
    for _ in range(2):
        cloud.guest_exited(vm.info.id, 16.0)
    assert [e.kind for e in cloud.advance(16.0)] == [EffectKind.POWER_OFF]
    assert vm.status is InstanceStatus.TERMINATED
    cloud.guest_exited(424242, 17.0)


def test_instance_deleted_behind_a_quiet_group_leaves_its_name() -> None:
    """instances.delete on a member of a DO_NOTHING group: the name stays, without VM, and counts
    until it is deleted by name."""
    cloud = up(make_world(), "a")
    zone = cloud.vms(15.0)[0].info.zone
    cloud.delete_instance(zone, "a", None, 15.0)
    cloud.advance(100.0)
    mig = cloud.mig(REGION, MIG, 100.0)
    assert (mig.target_size, mig.members["a"].vm, mig.is_stable) == (1, None, True)
    cloud.delete_instances(REGION, MIG, [f"zones/{zone}/instances/a"], False, None, 100.0)
    cloud.advance(200.0)
    assert (mig.target_size, mig.members) == (0, {})


def test_a_deletion_is_not_put_off() -> None:
    """A second instances.delete, a stop, or the guest's exit leave the first one's time."""
    cloud = up(make_world(), "a")
    vm = cloud.vms(15.0)[0].info
    cloud.delete_instance(vm.zone, "a", None, 15.0)
    cloud.delete_instance(vm.zone, "a", None, 17.0)
    cloud.stop_instance(vm.zone, "a", None, 17.0)
    cloud.guest_exited(vm.id, 18.0)
    assert [(e.kind, e.at) for e in cloud.advance(18.0)] == [
        (EffectKind.SOFT_OFF, 15.0),
        (EffectKind.POWER_OFF, 18.0),
    ]
    assert [v.status.value for v in cloud.vms(18.9)] == ["TERMINATED"]
    assert cloud.vms(19.0) == []


def test_a_world_that_starts_stocked_out_gets_no_vm() -> None:
    """Faults of the world file hold before its first VM is asked for."""
    world = make_world(
        mig_json(target_size=1), faults=[{"kind": "stockout", "region": REGION, "for_s": 50}]
    )
    cloud = CloudProject(world, 0.0)
    cloud.advance(50.0)
    assert cloud.vms(50.0) == []
    assert [e.kind for e in cloud.advance(90.0)] == [EffectKind.POWER_ON]


def test_repeated_request_id_on_an_instance_survives_the_instance() -> None:
    """A repeat of instances.delete after the VM is gone returns the original operation."""
    cloud = up(make_world(), "a")
    zone, request_id = cloud.vms(15.0)[0].info.zone, "00000000-0000-0000-0000-000000000001"
    first = cloud.delete_instance(zone, "a", request_id, 15.0)
    cloud.advance(100.0)
    assert cloud.vms(100.0) == []
    assert cloud.delete_instance(zone, "a", request_id, 100.0) == first


def test_operations_are_kept_for_a_limited_time() -> None:
    """Old operations are forgotten, with their request ids: memory has a bound."""
    cloud = CloudProject(make_world(), 0.0)
    first = cloud.resize(REGION, MIG, 0, "00000000-0000-0000-0000-000000000001", 0.0)
    last = first
    for _ in range(OPERATIONS_KEPT):
        last = cloud.resize(REGION, MIG, 0, None, 1.0)
    with pytest.raises(ApiError, match="was not found"):
        cloud.operation(f"regions/{REGION}", first.name)
    assert cloud.operation(f"regions/{REGION}", last.name) == last


def test_terminated_vm_frees_its_capacity() -> None:
    """A stopped VM holds no capacity, so that another can be granted."""
    world = make_world(mig_json(zones=ZONES[:1]), physics={"capacity": {"default": 1}})
    cloud = up(world, "a")
    cloud.create_instances(REGION, MIG, ["b"], None, 15.0)
    cloud.advance(100.0)
    assert [v.info.name for v in cloud.vms(100.0)] == ["a"]
    cloud.set_fault(Crash("a"), 100.0)
    cloud.advance(200.0)
    assert {v.info.name: v.status.value for v in cloud.vms(200.0)} == {
        "a": "TERMINATED",
        "b": "RUNNING",
    }


def test_deleting_a_name_that_waits_for_its_grant_frees_its_place() -> None:
    """Capacity reserved for a VM that never came is free again at once."""
    world = make_world(mig_json(zones=ZONES[:1]), physics={"capacity": {"default": 1}})
    cloud = CloudProject(world, 0.0)
    cloud.create_instances(REGION, MIG, ["a"], None, 0.0)
    cloud.delete_instances(REGION, MIG, [f"zones/{ZONES[0]}/instances/a"], False, None, 1.0)
    cloud.create_instances(REGION, MIG, ["b"], None, 1.0)
    cloud.advance(16.0)
    assert [v.info.name for v in cloud.vms(16.0)] == ["b"]


def test_slow_boots_lengthen_the_boot() -> None:
    """factor stretches the boot, seconds are added."""
    cloud = CloudProject(make_world(), 0.0)
    cloud.set_fault(SlowBoots(region=REGION, factor=3, seconds=7), 0.0)
    cloud.create_instances(REGION, MIG, ["a"], None, 0.0)
    assert [e.at for e in cloud.advance(1000.0)] == [5 + 3 * 10 + 7]


@pytest.mark.parametrize(
    ("shape", "zones"),
    [("ANY", {ZONES[1]}), ("BALANCED", {ZONES[1]}), ("EVEN", {ZONES[1]})],
)
def test_shapes_with_one_empty_zone(shape: str, zones: set[str]) -> None:
    """ANY and BALANCED put all VMs where there is capacity; EVEN leaves half of them waiting."""
    cloud = CloudProject(make_world(mig_json(target_shape=shape)), 0.0)
    cloud.set_fault(Stockout(zone=ZONES[0]), 0.0)
    cloud.create_instances(REGION, MIG, list("abcd"), None, 0.0)
    cloud.advance(500.0)
    vms = cloud.vms(500.0)
    assert {v.info.zone for v in vms} <= zones
    assert (len(vms) == 4) is (shape != "EVEN")


def test_a_single_zone_group_stays_in_one_zone() -> None:
    """ANY_SINGLE_ZONE picks its zone with the first VM."""
    cloud = CloudProject(make_world(mig_json(target_shape="ANY_SINGLE_ZONE")), 0.0)
    cloud.create_instances(REGION, MIG, list("abcdefgh"), None, 0.0)
    cloud.advance(15.0)
    assert len({v.info.zone for v in cloud.vms(15.0)}) == 1


def test_ids_do_not_come_back_after_a_restart() -> None:
    """A cloud of the same seed, started later, gives other ids to the same names."""
    ids = set()
    for start in (1_700_000_000.0, 1_700_000_001.0):
        cloud = CloudProject(make_world(mig_json(target_size=50)), start)
        cloud.advance(start + 100)
        ids |= {v.info.id for v in cloud.vms(start + 100)}
    assert len(ids) == 100
    assert max(ids) < 2**63


def test_a_world_may_start_with_vms() -> None:
    """target_size in the world file is reached without a call."""
    cloud = CloudProject(make_world(mig_json(target_size=2)), 0.0)
    assert [e.kind for e in cloud.advance(15.0)] == [EffectKind.POWER_ON, EffectKind.POWER_ON]


def test_time_does_not_run_backwards() -> None:
    """An earlier `now` than the last one undoes nothing."""
    cloud = up(make_world(), "a")
    assert cloud.advance(3.0) == []
    assert cloud.vms(3.0)[0].status is InstanceStatus.RUNNING


def test_error_history_is_bounded() -> None:
    """Ten minutes of retries of 200 names leaves the newest 500 records, not all."""
    cloud = CloudProject(make_world(faults=[{"kind": "stockout", "region": REGION}]), 0.0)
    cloud.create_instances(REGION, MIG, [f"vm-{i}" for i in range(200)], None, 0.0)
    assert cloud.advance(600.0) == []
    mig = cloud.mig(REGION, MIG, 600.0)
    assert len(mig.errors) == 500
    assert mig.target_size == 200


# --- any sequence of calls ------------------------------------------------------------------------

NAMES = [f"vm-{i}" for i in range(8)]
CAPACITY = 3


def crowded(seed: int = 1) -> World:
    repairing = mig_json("zen-mig", default_action_on_failure="REPAIR", spot=True)
    quiet = mig_json("quiet-mig", spot=True, target_shape="BALANCED")
    world = make_world(
        repairing,
        quiet,
        seed=seed,
        physics={"create_s": [1, 9], "boot_s": [2, 30], "capacity": {"default": CAPACITY}},
    )
    assert world.seed == seed
    return world


names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
groups = st.sampled_from(["zen-mig", "quiet-mig"])


class AnyCalls(RuleBasedStateMachine):
    """Calls in any order, at any time. What must hold is checked after each of them."""

    @initialize()
    def build(self) -> None:
        self.now = 0.0
        self.cloud = CloudProject(crowded(), 0.0)
        self.powered: set[int] = set()
        self.ever: dict[int, str] = {}

    def settle(self) -> None:
        for effect in self.cloud.advance(self.now):
            if effect.kind is EffectKind.POWER_ON:
                assert effect.vm.id not in self.ever, "an id came back"
                self.ever[effect.vm.id] = effect.vm.name
                self.powered.add(effect.vm.id)
            elif effect.kind is EffectKind.POWER_OFF:
                self.powered.remove(effect.vm.id)
            else:
                assert effect.vm.id in self.powered

    @rule(seconds=st.floats(0.0, 60.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(mig=groups, chosen=names)
    def create(self, mig: str, chosen: list[str]) -> None:
        before = self.cloud.mig(REGION, mig, self.now).target_size
        with suppress(ApiError):
            self.cloud.create_instances(REGION, mig, chosen, None, self.now)
            before += len(chosen)
        assert self.cloud.mig(REGION, mig, self.now).target_size == before

    @rule(mig=groups, chosen=names, zone=st.sampled_from(ZONES), skip=st.booleans())
    def delete(self, mig: str, chosen: list[str], zone: str, skip: bool) -> None:
        urls = [f"zones/{zone}/instances/{name}" for name in chosen]
        # With skip nothing about a well-formed URL can make the call fail.
        with nullcontext() if skip else suppress(ApiError):
            self.cloud.delete_instances(REGION, mig, urls, skip, None, self.now)

    @rule(mig=groups, chosen=names, zone=st.sampled_from(ZONES))
    def abandon(self, mig: str, chosen: list[str], zone: str) -> None:
        urls = [f"zones/{zone}/instances/{name}" for name in chosen]
        with suppress(ApiError):
            self.cloud.abandon_instances(REGION, mig, urls, None, self.now)

    @rule(mig=groups, size=st.integers(0, 6))
    def resize(self, mig: str, size: int) -> None:
        self.cloud.resize(REGION, mig, size, None, self.now)
        assert self.cloud.mig(REGION, mig, self.now).target_size == size

    @rule(zone=st.sampled_from(ZONES))
    def preempt(self, zone: str) -> None:
        self.cloud.set_fault(Preempt(zone=zone), self.now)

    @rule(zone=st.sampled_from(ZONES), for_s=st.floats(1, 100))
    def stockout(self, zone: str, for_s: float) -> None:
        self.cloud.set_fault(Stockout(for_s=for_s, zone=zone), self.now)

    @precondition(lambda self: self.powered)
    @rule(index=st.integers(0, 100), how=st.sampled_from(["exit", "crash", "delete", "stop"]))
    def end_one(self, index: int, how: str) -> None:
        on = [v for v in self.cloud.vms(self.now) if v.powered]
        if not on:
            return
        vm = on[index % len(on)].info
        if how == "exit":
            self.cloud.guest_exited(vm.id, self.now)
        elif how == "crash":
            self.cloud.set_fault(Crash(vm.name), self.now)
        elif how == "delete":
            self.cloud.delete_instance(vm.zone, vm.name, None, self.now)
        else:
            self.cloud.stop_instance(vm.zone, vm.name, None, self.now)

    @invariant()
    def target_is_the_number_of_members_that_stay(self) -> None:
        self.settle()
        for mig in self.cloud.migs(None, self.now):
            assert mig.target_size == sum(not m.leaving for m in mig.members.values())

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        for zone in ZONES:
            held = [v for v in self.cloud.vms(self.now) if v.info.zone == zone and v.hold]
            assert len(held) <= CAPACITY

    @invariant()
    def power_and_status_agree(self) -> None:
        self.settle()
        vms = self.cloud.vms(self.now)
        assert {v.info.id for v in vms if v.powered} == self.powered
        assert all(
            v.status in (InstanceStatus.RUNNING, InstanceStatus.STOPPING) for v in vms if v.powered
        )
        assert all((v.status is InstanceStatus.TERMINATED) is (v.hold is None) for v in vms)

    def teardown(self) -> None:
        """With no stockout and everything deleted, nothing is left but what was abandoned."""
        self.now += 500.0
        self.settle()
        for mig in self.cloud.migs(None, self.now):
            self.cloud.resize(REGION, mig.spec.name, 0, None, self.now)
        self.now += 500.0
        self.settle()
        assert all(not mig.members for mig in self.cloud.migs(None, self.now))
        assert all(v.member is None for v in self.cloud.vms(self.now))
        assert self.cloud.next_event_at() is None


AnyCalls.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestAnyCalls = AnyCalls.TestCase


@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(["resize", "preempt", "stockout"]), st.integers(0, 6))),
)
@settings(max_examples=40)
def test_same_seed_same_history(seed: int, calls: list[tuple[str, int]]) -> None:
    """Two clouds of one seed that get the same calls have the same history, to the last id."""

    def history() -> list[object]:
        cloud, now, seen = CloudProject(crowded(seed), 0.0), 0.0, list[object]()
        for call, number in calls:
            if call == "resize":
                seen.append(cloud.resize(REGION, MIG, number, None, now))
            elif call == "preempt":
                seen.append(cloud.set_fault(Preempt(zone=ZONES[number % 2]), now))
            else:
                cloud.set_fault(Stockout(for_s=number * 9 + 1, region=REGION), now)
            now += 13.0
            seen.extend(cloud.advance(now))
        return seen

    assert history() == history()


def test_another_seed_gives_another_history() -> None:
    """The seed matters."""
    boots = []
    for seed in (1, 2):
        cloud = CloudProject(crowded(seed), 0.0)
        cloud.resize(REGION, MIG, 3, None, 0.0)
        boots.append([(e.vm.name, e.at) for e in cloud.advance(100.0)])
    assert boots[0] != boots[1]
