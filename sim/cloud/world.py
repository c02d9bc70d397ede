"""What the pretend cloud is made of: its groups, its speeds, its capacity. Frozen values.

A world file; project, migs and a group's first five fields are required, the rest has
defaults::

    {"project": "zen-local",
     "migs": [{"name": "pipeline-zen-jobs-2xa100-40gb-us-central1-mig",
               "region": "us-central1", "zones": ["us-central1-a", "us-central1-f"],
               "base_instance_name": "pipeline-zen-jobs-2xa100-40gb-us-central1-vm",
               "machine_type": "a2-highgpu-2g", "gpus": 2, "spot": false,
               "preemption_notice_s": 0, "target_size": 0,
               "metadata": {"zen-cluster": "2xa100-40gb", "zen-gpus": "2"},
               "labels": {"zen": "1"}, "default_action_on_failure": "DO_NOTHING",
               "list_mode": "PAGELESS", "target_shape": "ANY"}],
     "seed": 1,
     "physics": {"create_s": [5, 15], "boot_s": [20, 40], "stockout_answer_s": 10, "retry_s": 30,
                 "delete_s": 15, "spot_notice_s": 30, "maintenance_notice_s": 3600,
                 "vms_max": null, "group_vms_max": 2000,
                 "capacity": {"default": null,
                              "pools": [{"zone": "us-central1-a", "machine_type": "a2-highgpu-2g",
                                         "spot": false, "vms": 4}]},
                 "quotas": [{"region": "us-central1", "metric": "NVIDIA_A100_GPUS", "limit": 16}]},
     "faults": [{"kind": "stockout", "zone": "us-central1-a", "for_s": 600}]}
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from sim.cloud.faults import GLOBAL, GLOBAL_METRIC, KnownNames, Lasting, parse_lasting_fault
from sim.cloud.parsing import Fields, InvalidInput

SHAPES = ("ANY", "ANY_SINGLE_ZONE", "BALANCED", "EVEN")
NAME_PATTERN = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
BASE_NAME_LENGTH_MAX = 58

# What Google calls the quota of each GPU. Machine types that bring their GPU are recognised by
# their family; n1 machines take several kinds, so their groups say which (`accelerator`).
_FAMILY_METRICS = (
    ("a2-highgpu", "NVIDIA_A100_GPUS"),
    ("a2-megagpu", "NVIDIA_A100_GPUS"),
    ("a2-ultragpu", "NVIDIA_A100_80GB_GPUS"),
    ("a3-", "NVIDIA_H100_GPUS"),
    ("g2-", "NVIDIA_L4_GPUS"),
)


@dataclass(frozen=True, slots=True)
class MigSpec:
    """One regional managed instance group, with what its instance template says."""

    name: str
    region: str
    zones: tuple[str, ...]
    base_instance_name: str
    machine_type: str
    gpus: int = 0
    accelerator: str | None = None
    spot: bool = False
    preemption_notice_s: float = 0.0  # of spot VMs: from the notice to the soft off
    target_size: int = 0
    metadata: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    default_action_on_failure: str = "DO_NOTHING"
    list_mode: str = "PAGELESS"
    target_shape: str = "ANY"

    def quota_use(self) -> dict[str, int]:
        """How much of each quota metric one VM of this group takes."""
        use = {"INSTANCES": 1}
        metric = self.gpu_metric()
        if metric and self.gpus:
            use[f"PREEMPTIBLE_{metric}" if self.spot else metric] = self.gpus
            use[GLOBAL_METRIC] = self.gpus
        return use

    def gpu_metric(self) -> str | None:
        for family, metric in _FAMILY_METRICS:
            if self.machine_type.startswith(family):
                return metric
        if self.accelerator is None:
            return None
        kind = re.sub(r"^nvidia-(tesla-)?", "", self.accelerator)
        return f"NVIDIA_{kind.upper().replace('-', '_')}_GPUS"


@dataclass(frozen=True, slots=True)
class CloudPhysics:
    """How fast things go and how much there is."""

    create_s: tuple[float, float] = (5.0, 15.0)  # accepted → the VM exists
    boot_s: tuple[float, float] = (20.0, 40.0)  # exists → RUNNING
    stockout_answer_s: float = 10.0  # attempt → its error is visible
    retry_s: float = 30.0  # error → next attempt
    delete_s: float = 15.0
    spot_notice_s: float = 30.0
    maintenance_notice_s: float = 3600.0
    capacity_default: int | None = None  # VMs per (zone, machine type, spot); None is unlimited
    capacity: tuple[tuple[tuple[str, str, bool], int | None], ...] = ()
    quotas: tuple[tuple[tuple[str, str], float], ...] = ()  # (region, metric) → limit
    group_vms_max: int = 2000  # VMs in one group; Google allows more on request
    vms_max: int | None = None  # VMs in the whole project: what the machine below can carry


@dataclass(frozen=True, slots=True)
class World:
    project: str
    migs: tuple[MigSpec, ...]
    physics: CloudPhysics = field(default_factory=CloudPhysics)
    faults: tuple[Lasting, ...] = ()
    seed: int = 0
    project_number: int = 100000000001

    def known(self, vms: frozenset[str] = frozenset()) -> KnownNames:
        return KnownNames(
            regions=frozenset(m.region for m in self.migs),
            zones=frozenset(z for m in self.migs for z in m.zones),
            machine_types=frozenset(m.machine_type for m in self.migs),
            metrics=frozenset(metric for m in self.migs for metric in m.quota_use()),
            vms=vms,
        )

    def zones_of(self, region: str) -> tuple[str, ...]:
        return tuple(sorted({z for m in self.migs if m.region == region for z in m.zones}))


def region_of(zone: str) -> str:
    """``us-central1-a`` lies in ``us-central1``."""
    return zone.rpartition("-")[0]


def load_world(path: Path | str) -> World:
    """Reads a world file, or raises BadInput with everything that is wrong in it."""
    try:
        raw: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"world file {path}", [error.strerror or str(error)]) from error
    except ValueError as error:
        raise InvalidInput(f"world file {path}", [f"not JSON: {error}"]) from error
    return parse_world(raw, f"world file {path}")


def parse_world(raw: object, what: str = "world") -> World:
    problems: list[str] = []
    top = Fields(raw, "", problems)
    project = top.text("project", pattern=r"[a-z][-a-z0-9]{2,61}[a-z0-9]")
    number = top.whole("project_number", 100000000001, low=1)
    seed = top.whole("seed", 0)
    migs = tuple(_mig(fields) for fields in top.objects("migs"))
    _check_groups(migs, problems)
    bare = World(project, migs, seed=seed, project_number=number)
    known = bare.known()
    physics = _physics(top.inner("physics"), known)
    faults = tuple(
        fault
        for i, item in enumerate(top.raw_items("faults"))
        if (fault := parse_lasting_fault(item, known, f"faults[{i}]", problems)) is not None
    )
    top.done()
    if problems:
        raise InvalidInput(what, problems)
    return World(project, migs, physics, faults, seed, number)


def parse_groups(raw: object, what: str = "groups") -> tuple[MigSpec, ...]:
    """The groups of a world alone: {"migs": […]}."""
    problems: list[str] = []
    top = Fields(raw, "", problems)
    migs = tuple(_mig(fields) for fields in top.objects("migs"))
    _check_groups(migs, problems)
    top.done()
    if problems:
        raise InvalidInput(what, problems)
    return migs


def _mig(fields: Fields) -> MigSpec:
    region = fields.text("region", pattern=r"[a-z]+(-[a-z]+)+[0-9]+")
    zones = fields.texts("zones")
    if any(region_of(zone) != region for zone in zones):
        fields.problem("zones", f"zones of region {region}")
    base = fields.text("base_instance_name", pattern=NAME_PATTERN)
    if len(base) > BASE_NAME_LENGTH_MAX:
        fields.problem("base_instance_name", f"at most {BASE_NAME_LENGTH_MAX} characters")
    spec = MigSpec(
        name=fields.text("name", pattern=NAME_PATTERN),
        region=region,
        zones=zones,
        base_instance_name=base,
        machine_type=fields.text("machine_type"),
        gpus=fields.whole("gpus", 0, high=64),
        accelerator=fields.text("accelerator") if fields.given("accelerator") else None,
        spot=fields.flag("spot", False),
        preemption_notice_s=fields.number("preemption_notice_s", 0.0, high=120.0),
        target_size=fields.whole("target_size", 0, high=2000),
        metadata=fields.mapping("metadata"),
        labels=fields.mapping("labels"),
        default_action_on_failure=fields.choice(
            "default_action_on_failure", ("DO_NOTHING", "REPAIR"), "DO_NOTHING"
        ),
        list_mode=fields.choice("list_mode", ("PAGELESS", "PAGINATED"), "PAGELESS"),
        target_shape=fields.choice("target_shape", SHAPES, "ANY"),
    )
    fields.done()
    return spec


def _check_groups(migs: tuple[MigSpec, ...], problems: list[str]) -> None:
    if not migs:
        problems.append("migs: expected at least one group, got none")
    seen: set[tuple[str, str]] = set()
    for i, mig in enumerate(migs):
        if (mig.region, mig.name) in seen:
            problems.append(f"migs[{i}].name: {mig.name} exists twice in region {mig.region}")
        seen.add((mig.region, mig.name))


def _physics(fields: Fields, known: KnownNames) -> CloudPhysics:
    default = CloudPhysics()
    capacity = fields.inner("capacity")
    pools = tuple(_pool(pool, known) for pool in capacity.objects("pools"))
    default_vms = capacity.whole("default") if capacity.given("default") else None
    capacity.done()
    quotas = tuple(_quota(quota, known) for quota in fields.objects("quotas"))
    physics = CloudPhysics(
        create_s=fields.span("create_s", default.create_s),
        boot_s=fields.span("boot_s", default.boot_s),
        stockout_answer_s=fields.number("stockout_answer_s", default.stockout_answer_s),
        # Retries have no end, so the time between them must be more than nothing.
        retry_s=fields.number("retry_s", default.retry_s, low=0.01),
        delete_s=fields.number("delete_s", default.delete_s),
        spot_notice_s=fields.number("spot_notice_s", default.spot_notice_s),
        maintenance_notice_s=fields.number("maintenance_notice_s", default.maintenance_notice_s),
        capacity_default=default_vms,
        capacity=pools,
        quotas=quotas,
        vms_max=fields.whole("vms_max") if fields.given("vms_max") else None,
        group_vms_max=fields.whole("group_vms_max", default.group_vms_max, low=1, high=4000),
    )
    fields.done()
    return physics


def _pool(fields: Fields, known: KnownNames) -> tuple[tuple[str, str, bool], int | None]:
    key = (
        fields.known("zone", known.zones, "zone"),
        fields.known("machine_type", known.machine_types, "machine type"),
        fields.flag("spot", False),
    )
    vms = fields.whole("vms") if fields.given("vms") else None
    fields.done()
    return key, vms


def _quota(fields: Fields, known: KnownNames) -> tuple[tuple[str, str], float]:
    key = (
        fields.known("region", known.regions | {GLOBAL}, "region"),
        fields.known("metric", known.metrics, "quota metric"),
    )
    limit = fields.number("limit")
    fields.done()
    return key, limit
