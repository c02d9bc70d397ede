"""Cluster selections that were made before: jobs that ask for the same get the same answer, until
the configuration or what is known of regions changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from core.cluster import ClusterSpec
from core.job_fields import SPEC_FIELDS, JobSpec
from core.region_blocks import RegionBlock
from scheduler.queue.blocked_clusters import blocked_clusters
from scheduler.submission.cluster_selection import Choice, choose_cluster

KEPT_MAX = 4096
UNREAD = frozenset(
    {
        *("job_id", "user_id", "tenant_id", "name", "labels", "priority", "group", "after"),
        *("command", "shell", "keep_entrypoint", "workflow_args", "keep_alive"),
        *("max_runtime_s", "queue_timeout_s", "stop_grace_s", "deadline", "retries"),
    }
)
"""Fields of a job that cluster selection does not look at."""
NAMED = ("environment", "secrets")
"""Of these it looks at whether there are any; their names only stand in refusals."""
_asked = attrgetter(
    *(field.attribute for field in SPEC_FIELDS if field.attribute not in {*UNREAD, *NAMED})
)


class KnownChoices:
    """Only of jobs that were accepted: a refusal names values of the job."""

    def __init__(self) -> None:
        self._clusters: Sequence[ClusterSpec] = ()
        self._blocks: Sequence[RegionBlock] = ()
        self._until: datetime | None = None
        """When the next region block ends."""
        self._made: dict[tuple[object, ...], Choice] = {}

    def choose(
        self,
        spec: JobSpec,
        clusters: Sequence[ClusterSpec],
        blocks: Sequence[RegionBlock],
        now: datetime,
        *,
        spot_by_default: bool,
    ) -> Choice:
        """As choose_cluster; BadInput names what no cluster can give."""
        self._forget_old(clusters, blocks, now)
        key = (spot_by_default, bool(spec.environment), bool(spec.secrets), *_asked(spec))
        made = self._made.get(key)
        if made is None:
            blocked = blocked_clusters(spec, clusters, blocks, now)
            made = choose_cluster(spec, clusters, blocked, spot_by_default=spot_by_default)
            if len(self._made) >= KEPT_MAX:
                self._made.clear()
            self._made[key] = made
        return made

    def _forget_old(
        self, clusters: Sequence[ClusterSpec], blocks: Sequence[RegionBlock], now: datetime
    ) -> None:
        same = clusters is self._clusters and blocks == self._blocks
        if same and (self._until is None or now < self._until):
            return
        self._made.clear()
        self._clusters, self._blocks = clusters, blocks
        self._until = min((block.until for block in blocks if block.until > now), default=None)
