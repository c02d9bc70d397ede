"""What every Store does, whatever it is made of. A suite inherits from StoreContract, imports
the fixture `maker`, and gives the fixtures `store`, `reads`, `configs` and `audit_log` (over the
same data), `expire_leader` (lets the leader's lease run out), `end_session` (that of the leader,
from outside) and `another` (a second store over the same data)."""

from __future__ import annotations

import pytest

from tests.db.builders import Maker
from tests.db.contract.arrays import Arrays
from tests.db.contract.audit import AuditLogs
from tests.db.contract.capacity import Knowledge, Machines, SupplyHistories
from tests.db.contract.configs import Configurations
from tests.db.contract.cost import Costs
from tests.db.contract.following import Attempts, Progressing, Snapshots, Timeline
from tests.db.contract.forecasts import Forecasts
from tests.db.contract.holds import Gangs, Groups, Holding
from tests.db.contract.keeping import Another, Keeping
from tests.db.contract.leading import LeaderSessions
from tests.db.contract.milestones import Histories
from tests.db.contract.retention import Pruning
from tests.db.contract.tenant_bounds import TenantBounds
from tests.db.contract.tenants import FairHeads, Tenants
from tests.db.contract.waits import Waits
from tests.db.contract.words import EndSession, ExpireLeader
from tests.db.contract.writing import Guards, Leading, Outbox, Submissions

__all__ = ["Another", "EndSession", "ExpireLeader", "StoreContract", "maker"]


@pytest.fixture
def maker() -> Maker:
    return Maker()


class StoreContract(
    Submissions,
    Arrays,
    Guards,
    Leading,
    LeaderSessions,
    Outbox,
    Attempts,
    Timeline,
    Progressing,
    Snapshots,
    Keeping,
    Holding,
    Groups,
    Gangs,
    Machines,
    Knowledge,
    SupplyHistories,
    Histories,
    Pruning,
    Costs,
    Configurations,
    Tenants,
    FairHeads,
    Forecasts,
    Waits,
    TenantBounds,
    AuditLogs,
):
    """All of it."""
