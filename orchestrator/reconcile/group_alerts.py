"""What people are told about a group: that it begins, what its words are now, that it is over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from core.alerts import (
    ALERTS,
    CLOUD_MISSING,
    CLOUD_OTHER,
    CLOUD_PERMISSION,
    CLOUD_QUOTA,
    CLOUD_UNCLAIMED,
    CLOUD_UNREADY,
    GROUP_SETTINGS,
    UNKNOWN_VM,
)
from core.changes import Change, ClearAlert
from core.mig import MigSnapshot
from core.region_blocks import EVERYWHERE, BlockKind, RegionBlock, is_remembered
from core.timers import Timers
from orchestrator.supply.blocks import block_s

Told = Mapping[str, str]
"""Kind of alert → words."""
BLOCK_ALERTS = {
    BlockKind.QUOTA: CLOUD_QUOTA,
    BlockKind.PERMISSION: CLOUD_PERMISSION,
    BlockKind.OTHER: CLOUD_OTHER,
    BlockKind.MISSING: CLOUD_MISSING,
    BlockKind.UNREADY: CLOUD_UNREADY,
    BlockKind.UNCLAIMED: CLOUD_UNCLAIMED,
}
"""Region blocks that are for a human: a stockout is weather."""


class Complaints:
    """What people have been told about the groups of one cluster, so that only news is written. It
    is taken for told once it is stored: a commit may fail."""

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}
        self._open: Collection[tuple[str, str]] = ()

    def remember(self, open_alerts: Collection[tuple[str, str]]) -> None:
        """(kind, group) of what stands open, perhaps since a former leader."""
        self._open = open_alerts

    def news(self, observed: MigSnapshot, after: Told, now: datetime) -> list[Change]:
        """A complaint that stands as it was is not written again, and one that this observation
        does not repeat is over, also if it was a former leader's."""
        mine, before = observed.mig, self._before(observed.region, observed.mig)
        raised: list[Change] = [
            ALERTS[kind].saying(words, mine, now)
            for kind, words in after.items()
            if before.get(kind) != words
        ]
        cleared = [ClearAlert(kind, mine, now) for kind in before if kind not in after]
        return raised + cleared

    def told(self, regions: Mapping[str, Told]) -> None:
        """It is stored."""
        self._told |= regions

    def with_refusal(self, region: str, mig: str, kind: str, words: str) -> Told | None:
        """What people know once they are told that the cloud refused a call; None: they do."""
        before = self._before(region, mig)
        return None if before.get(kind) == words else {**before, kind: words}

    def others(self, held: Collection[str]) -> list[str]:
        """Regions that people were told about, beyond these."""
        return [region for region in self._told if region not in held]

    def end(self, region: str, mig: str, now: datetime) -> list[Change]:
        """Nobody will look there again, so nobody would take it back."""
        return [ClearAlert(kind, mig, now) for kind in self._told[region]]

    def forget(self, regions: Iterable[str]) -> None:
        for region in regions:
            self._told.pop(region, None)

    def _before(self, region: str, mig: str) -> Told:
        """Told by us, or what a former leader complained of."""
        left_open = {kind: "" for kind, subject in self._open if subject == mig}
        return self._told.get(region, left_open)


def for_humans(blocks: Iterable[RegionBlock], timers: Timers, now: datetime) -> list[RegionBlock]:
    """A stockout is weather; a quota, a permission or what nobody has classified is for a human. It
    stands until the region delivers, or has not refused for as long again as it was left alone:
    between the end of a block and the next refusal nothing is better. VMs that never get to work
    are for a human until one does, or until they are forgotten."""
    kinds = (BlockKind.QUOTA, BlockKind.PERMISSION, BlockKind.OTHER)
    return [
        block
        for block in blocks
        if (block.is_fault and is_remembered(block, timers, now))
        or (
            block.kind in kinds
            and block.zone != EVERYWHERE  # told where it was met
            and block.blocks(now - timedelta(seconds=block_s(block.kind, block.count, timers)))
        )
    ]


def complaints(
    observed: MigSnapshot, ours: Iterable[str], blocks: Iterable[RegionBlock] = ()
) -> dict[str, str]:
    """What a human should know about the group: kind of alert → words. `blocks`: the region
    blocks that are for humans."""
    known = set(ours)
    found = {(kind := BLOCK_ALERTS[t.kind]).name: kind.message(error=t.message) for t in blocks}
    strangers = sorted(m.name for m in observed.members if m.name not in known)
    if strangers:
        more = f" and {len(strangers) - 5} more" if len(strangers) > 5 else ""
        names = ", ".join(strangers[:5]) + more
        found[UNKNOWN_VM.name] = UNKNOWN_VM.message(group=observed.mig, names=names)
    if observed.faults:
        faults = "; ".join(observed.faults)
        found[GROUP_SETTINGS.name] = GROUP_SETTINGS.message(faults=faults)
    return found
