"""VMs, calls to the cloud, and what is known of regions."""

from __future__ import annotations

from typing import Any, get_args

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import UUID

from core.cluster import WorkerKind
from core.region_blocks import BlockKind
from core.supply import SupplyOutcome
from core.vm import GivenUp, VmState
from db.tables.columns import (
    any_of,
    array_column,
    flag_column,
    index,
    json_column,
    metadata,
    number_column,
    text_column,
    time_column,
)
from db.vm_states import COUNTED, GONE, IN_FLIGHT

vms = sa.Table(
    "vms",
    metadata,
    sa.Column("uid", UUID, primary_key=True),
    text_column("name"),
    text_column("cluster"),
    text_column("region"),
    text_column("zone", default=True),
    text_column("state"),
    sa.Column("version", sa.Integer, nullable=False),
    text_column("request_id"),
    text_column("instance_id", default=True),
    text_column("boot_nonce", default=True),
    sa.Column("gpus", sa.Integer, nullable=False),
    sa.Column("spot", sa.Boolean, nullable=False),
    number_column("usd_per_hour"),
    json_column("leases", "[]"),
    time_column("requested_at"),
    time_column("state_since"),
    *(
        time_column(name, nullable=True)
        for name in (
            *("running_since", "ready_at", "idle_since", "last_beat_at", "stopped_at", "gone_at"),
            *("kept_until", "ends_at", "leaving_since"),
        )
    ),
    flag_column("refused", default="false"),
    flag_column("taken", default="false"),
    text_column("reason", default=True),
    text_column("address", default=True),
    json_column("readings", "[]"),
    json_column("health", "{}"),
    text_column("together", default=True),
    # The job whose wait made the service ask for it; boot, idle and hedge time is its tenant's.
    sa.Column("caused_by", UUID),
    number_column("idle_max_s", default="0"),
    number_column("billed_at_least_s", default="60"),
    sa.Column("worker", sa.Text, nullable=False, server_default=sa.text("'v2'")),
    sa.Column("given_up", sa.Text),
    # Public keys of the boot that boot_nonce names, and the highest sequence number heard of it.
    sa.Column("worker_keys", sa.Text),
    sa.Column("heard_seq", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # Its bill up to here is in cost_daily and job_costs; `settled`: all of it is.
    time_column("settled_until", nullable=True),
    flag_column("settled", default="false"),
    sa.Column("moved", sa.BigInteger),
    index("ix_vms_moved", "moved", where="moved IS NOT NULL"),
    sa.CheckConstraint(f"state IN {any_of(VmState)}", "state"),
    sa.CheckConstraint(f"worker IN {any_of(get_args(WorkerKind))}", "worker"),
    sa.CheckConstraint(f"given_up IN {any_of(GivenUp)}", "given_up"),
    sa.CheckConstraint(f"({GONE}) = (gone_at IS NOT NULL)", "gone"),
    # Only a READY VM takes work, and nothing leads back to before READY.
    sa.CheckConstraint(f"state NOT IN {any_of(IN_FLIGHT)} OR leases = '[]'::jsonb", "leases"),
    sa.CheckConstraint("version >= 1 AND gpus >= 0 AND usd_per_hour >= 0", "counters"),
    index("uq_vms_living_name", "name", unique=True, where=COUNTED),
    index("ix_vms_living", "cluster, state", where=COUNTED),
    index("ix_vms_gone_with_leases", "uid", where=f"{GONE} AND leases <> '[]'::jsonb"),
    index("ix_vms_gone", "gone_at", where=f"{GONE} AND leases = '[]'::jsonb"),
    index("ix_vms_living_newest", "requested_at DESC, uid DESC", where=COUNTED),
    index("ix_vms_newest", "requested_at DESC, uid DESC"),
    index("ix_vms_unsettled", "uid", where="NOT settled"),
    index("ix_vms_caused_by", "caused_by", where="NOT settled"),
)

cloud_requests = sa.Table(
    "cloud_requests",
    metadata,
    sa.Column("request_id", sa.Text, primary_key=True),
    text_column("kind"),
    text_column("cluster"),
    text_column("region"),
    json_column("names", "[]"),
    text_column("reason"),
    time_column("created_at"),
    time_column("settled_at", nullable=True),
    text_column("outcome", default=True),
    text_column("together", default=True),
    number_column("run_s", default="0"),
    sa.CheckConstraint("kind IN ('create', 'delete', 'queue', 'unqueue')", "kind"),
    index("ix_cloud_requests_open", "created_at, request_id", where="settled_at IS NULL"),
    index("ix_cloud_requests_settled", "settled_at", where="settled_at IS NOT NULL"),
)


def _place() -> list[sa.Column[Any]]:
    """What region blocks and the supply history are kept for."""
    spot = sa.Column("spot", sa.Boolean, primary_key=True)
    names = ("region", "zone", "machine_type")
    return [*(sa.Column(name, sa.Text, primary_key=True) for name in names), spot]


blocks = sa.Table(
    "troubles",
    metadata,
    *_place(),
    sa.Column("kind", sa.Text, primary_key=True),
    time_column("since"),
    time_column("last_seen"),
    time_column("until"),
    sa.Column("count", sa.Integer, nullable=False),
    text_column("message"),
    sa.CheckConstraint(f"kind IN {any_of(BlockKind)}", "kind"),
    sa.CheckConstraint("count >= 1", "count"),
)

_SUMS = (
    *("deliveries", "delivery_log_mean", "delivery_log_var"),
    *("boots", "boot_log_mean", "boot_log_var"),
    *("room", "preempted", "vm_hours"),
)
supply = sa.Table(
    "experience",
    metadata,
    *_place(),
    time_column("updated_at"),
    number_column("hits"),
    number_column("misses"),
    sa.Column("last", sa.Text),
    time_column("last_at", nullable=True),
    *map(number_column, _SUMS),
    array_column("short_kept", sa.Integer()),
    array_column("short_at", sa.DateTime(timezone=True)),
    sa.CheckConstraint(f"last IN {any_of(SupplyOutcome)}", "last"),
)

region_status = sa.Table(
    "region_status",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("target_size", sa.Integer, nullable=False),
    text_column("why"),
    time_column("observed_at", nullable=True),
)
