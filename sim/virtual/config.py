"""The configuration file of a simulated run: one paper that all replicas watch, and its edits."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from config.document import Document
from config.errors import ConfigError
from config.reload import CandidateConfig, Reader
from config.settings import Settings
from config.watch import FileLook
from core.cluster import ClusterSpec
from scheduler.operations.live_config import ConfigParts
from sim.memory.config_versions import MemoryConfigVersions
from sim.memory.store import MemoryStore

LOOK_S = 4.0
"""Less often than in real life: nobody edits by the second, and looks are most of an idle hour."""
BROKEN = b"clusters: {1xl4: {vm_max: -1}}\nnonsense"


class Paper:
    """A file in memory. `original` is what a healed world goes back to."""

    path = "/etc/zen/zen.yaml"

    def __init__(self, settings: Settings) -> None:
        self.original = document_of(settings)
        self.document: dict[str, Any] = copy.deepcopy(self.original)
        self._edits = 0
        self._raw = b""
        self._reader = _Remembering({})
        self._write()

    def look(self) -> FileLook:
        return FileLook(self._raw, (self._edits,))

    def parts(self, store: MemoryStore) -> ConfigParts:
        """For a process that starts now: with the file or, if it is bad, with what is in force."""
        try:
            started = self._reader.file(self._raw, self.path)
        except ConfigError:
            newest = store.tables.configs[-1]
            known = Document(f"version {newest.version}", copy.deepcopy(dict(newest.document)))
            started = self._reader.document(known)
        return ConfigParts(self._reader, started, self, MemoryConfigVersions(store), look_s=LOOK_S)

    # --- edits ---------------------------------------------------------------------------

    def change_limit(self, dice: random.Random) -> str:
        """Somewhere between the floor and twice what it was in the beginning."""
        name = dice.choice(sorted(self.document["clusters"]))
        most = 2 * self.original["clusters"][name]["vm_max"]
        cluster = self.document["clusters"][name]
        cluster["vm_max"] = dice.randint(max(1, cluster["vm_min"]), most)
        self._write()
        return f"{name}.vm_max: {cluster['vm_max']}"

    def change_region(self, dice: random.Random) -> str:
        """A region is withdrawn from a cluster, or comes back."""
        name = dice.choice(sorted(self.document["clusters"]))
        regions = self.document["clusters"][name]["regions"]
        every = self.original["clusters"][name]["regions"]
        away = sorted(every.keys() - regions.keys())
        if away and (len(regions) == 1 or dice.random() < 0.5):
            region = dice.choice(away)
            regions[region] = copy.deepcopy(every[region])
        else:
            region = dice.choice(sorted(regions))
            del regions[region]
        self._write()
        return f"{name}.regions: {', '.join(regions)}"

    def change_drain(self, dice: random.Random) -> str:
        """A cluster is drained, or taken back into use."""
        name = dice.choice(sorted(self.document["clusters"]))
        cluster = self.document["clusters"][name]
        cluster["drain"] = not cluster.get("drain", False)
        self._write()
        return f"{name}.drain: {cluster['drain']}"

    def remove(self, dice: random.Random) -> str:
        """A cluster is taken away: refused if it has jobs, and back with the next edit."""
        name = dice.choice(sorted(self.document["clusters"]))
        left = {key: value for key, value in self.document["clusters"].items() if key != name}
        if left:
            self._put(_text({**self.document, "clusters": left}))
        return f"{name} removed"

    def spoil(self) -> None:
        """An edit that no replica may believe."""
        self._put(BROKEN)

    def mend(self) -> None:
        """What the file said before it was spoilt."""
        self._write()

    def restore(self) -> None:
        """As it was in the beginning, whether or not any replica is awake to see it."""
        self.document = copy.deepcopy(self.original)
        self._write()

    def _write(self) -> None:
        self._put(_text(self.document))

    def _put(self, raw: bytes) -> None:
        self._raw = raw
        self._edits += 1


class _Remembering(Reader):
    """The same content is read once, however many replicas look at it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._files: dict[bytes, CandidateConfig | ConfigError] = {}
        self._versions: dict[int, CandidateConfig] = {}

    def file(self, raw: bytes, path: str) -> CandidateConfig:
        if raw not in self._files:
            try:
                self._files[raw] = super().file(raw, path)
            except ConfigError as error:
                self._files[raw] = error
        found = self._files[raw]
        if isinstance(found, ConfigError):
            raise found
        return found

    def stored(self, document: Mapping[str, Any], version: int) -> CandidateConfig:
        if version not in self._versions:
            self._versions[version] = super().stored(document, version)
        return self._versions[version]


def document_of(settings: Settings) -> dict[str, Any]:
    """The document that these settings would come from."""
    return {
        "project": settings.project,
        "prefix": settings.names.prefix,
        "store_url": settings.store_url,
        **{key: value for key, value in settings.cloud.items() if value is not None},
        "queue_limit": settings.queue_limit,
        "log_level": settings.log_level,
        "timers": asdict(settings.timers),
        "budgets": asdict(settings.budgets),
        "retention": asdict(settings.retention),
        "capacity": asdict(settings.capacity),
        "queue": asdict(settings.queue),
        "gpus": {c.gpu_type: {"memory_gb": c.gpu_memory_gb} for c in settings.clusters if c.gpus},
        "machines": {
            c.machine_type: {
                "cpus": c.cpus,
                "memory_gb": c.memory_gb,
                "usd_per_hour": 0,
                "spot_usd_per_hour": 0,
            }
            for c in settings.clusters
        },
        "prices": {"as_of": settings.prices_as_of},
        "clusters": {c.name: _cluster(c) for c in settings.clusters},
        "submit": {
            "topics": {bound.topic: {"tenant": bound.tenant_id} for bound in settings.submit_topics}
        },
    }


def _cluster(spec: ClusterSpec) -> dict[str, Any]:
    return {
        "machine_type": spec.machine_type,
        "vm_max": spec.vm_max,
        "vm_min": spec.vm_min,
        "spot": spec.spot,
        "share": spec.share,
        "share_between_tenants": spec.share_between_tenants,
        "queue": spec.queue.value,
        "flex_start_wait_s": spec.flex_start_wait_s,
        "regions": {
            r.region: {
                "zones": list(r.zones),
                "usd_per_hour": r.usd_per_hour,
                "spot_usd_per_hour": r.spot_usd_per_hour,
            }
            for r in spec.regions
        },
    }


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()  # JSON is YAML
