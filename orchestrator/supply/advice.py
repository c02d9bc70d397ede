"""The cloud's own word on its regions: asked for beside the observations, learned from once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from core.cluster import ClusterSpec
from core.mig import CapacityHint
from core.ports import CapacityAdvice
from orchestrator.supply.observations import ClusterRules, ClusterState


class Hints:
    """Of one cluster."""

    def __init__(self, advice: CapacityAdvice | None) -> None:
        self._advice = advice
        self._new: list[CapacityHint] = []
        self._heard_at: dict[str, datetime] = {}

    def wanted(self, spec: ClusterSpec, region: str) -> bool:
        """Whether there is anybody to ask, and anything: the cloud speaks of spot VMs alone."""
        ours = any(mine.region == region for mine in spec.regions)
        return self._advice is not None and spec.spot and ours

    async def ask(self, spec: ClusterSpec, region: str) -> None:
        """The advice paces itself: what it repeats is not new."""
        assert self._advice is not None, "see wanted()"
        hints = await self._advice.advise(spec, region)
        self._new += [hint for hint in hints if self._heard_at.get(region) != hint.at]
        if hints:
            self._heard_at[region] = hints[0].at

    def heed(self, state: ClusterState, rules: ClusterRules) -> ClusterState:
        """Learned like the zones that the cloud names in its errors."""
        if not self._new:
            return state
        hints, self._new = self._new, []
        lessons = rules.lessons(state.supply)
        for hint in hints:
            if hint.likely:  # bad chances teach nothing: only a refusal is a refusal
                lessons.hints(hint.place.region, (hint.place.zone,))
        return replace(state, supply=lessons.supply).with_changes(lessons.changes)
