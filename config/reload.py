"""Documents as candidates for being in force: read, compared, judged. Pure, but for the clock of
the caller.

Versions are about what all replicas share. What belongs to one process (its database, the address
it listens on) stays with the process; what a running system cannot change (names, the spans that
workers were started with) is refused until a restart.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from config.database_keys import DATABASE_KEYS
from config.diff import differences
from config.document import Document, read_bytes
from config.errors import ConfigError
from config.load import outline, overridden, settings_of
from config.schema import KEYS
from config.settings import Settings
from core.errors import Fault
from core.submission import shown
from core.timers import AGENT_TIMERS

PROCESS_KEYS: Final = (
    *(key.path for key in DATABASE_KEYS),
    *("pubsub_host", "compute_url", "identity_certs_url", "log_level"),
    *("secrets.key_file", "secrets.manager_url"),
    *("workers.key_file", "workers.service_account"),
    *(key.path for key in KEYS if key.path.startswith("api.")),
)
"""Of one process: recorded, so that one without a readable file finds them, but never compared."""
SHARED_RESTART_KEYS: Final = (
    *("project", "prefix", "store_url", "submit.topics"),
    *("audit.anchor_url", "audit.anchor_every_s"),
    *(key.path for key in KEYS if key.cloud and key.path not in PROCESS_KEYS),
    *(f"timers.{name}" for name in AGENT_TIMERS),
)
RESTART_KEYS: Final = (*SHARED_RESTART_KEYS, *PROCESS_KEYS)
"""Read once, at the start."""
_SECRETS: Final = frozenset(key.path for key in KEYS if key.secret)
_WORKERS: Final = "create new instance templates, then restart"


@dataclass(frozen=True, slots=True)
class CandidateConfig:
    """A document without faults."""

    document: Mapping[str, Any]
    """As written, as JSON knows it, without secrets."""
    digest: str
    outline: Mapping[str, Any]
    """With defaults filled in and without what belongs to one process, for comparing."""
    settings: Settings
    fixed: Mapping[str, object]
    """The keys that need a restart, as they are with the environment."""

    def diff(self, before: CandidateConfig | None) -> tuple[str, ...]:
        """What it changes, in words."""
        return differences(before.outline if before else {}, self.outline)


class Reader:
    """Candidates as this process sees them: with its own environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def file(self, raw: bytes, path: str) -> CandidateConfig:
        """ConfigError with every fault, each with its line."""
        return self.document(read_bytes(raw, path))

    def stored(self, document: Mapping[str, Any], version: int) -> CandidateConfig:
        """ConfigError if this software cannot read what another has recorded. What belongs to one
        process is the recorder's there: nobody else compares it."""
        known = Document(f"version {version}", copy.deepcopy(dict(document)))
        return self.document(known, SHARED_RESTART_KEYS, listens=False)

    def whole(self, document: Mapping[str, Any], source: str) -> CandidateConfig:
        """Of a whole file, but for its secrets: those cannot be compared."""
        known = tuple(path for path in RESTART_KEYS if path not in _SECRETS)
        return self.document(Document(source, copy.deepcopy(dict(document))), known, listens=False)

    def document(
        self,
        document: Document,
        fixed_keys: Sequence[str] = RESTART_KEYS,
        *,
        listens: bool = True,
    ) -> CandidateConfig:
        """ConfigError with every fault. `listens`: False for what another process has recorded."""
        if document.faults and not document.values:
            raise ConfigError(document.faults)
        written = _without(_json(document.values), _SECRETS)
        shared = Document(document.source, _without(written, PROCESS_KEYS))
        fixed = outline(document, self._environ)
        settings = settings_of(document.copy(), self._environ, listens=listens)
        return CandidateConfig(
            document=written,
            digest=digest_of(shared.values),
            outline=outline(shared),
            settings=settings,
            fixed={path: value_at(fixed, path) for path in fixed_keys},
        )

    def salvage(self, document: Document) -> Document:
        """Of a document with faults: the keys of this process that are there and good, environment
        and all. Beside a recorded version they are enough to start with."""
        said = overridden(document, self._environ).values
        found = outline(document, self._environ)
        kept = Document(document.source)
        for path in PROCESS_KEYS:
            if value_at(said, path) is not None and (value := value_at(found, path)) is not None:
                kept.put(tuple(path.split(".")), value, document.source)
        return kept

    def database_url(self, document: Document) -> str | None:
        """Where the versions are, said or by default; None: what is said is at fault."""
        found: str | None = value_at(outline(document, self._environ), "database_url")
        return found


def restart_faults(
    started: CandidateConfig, candidate: CandidateConfig, source: str
) -> list[Fault]:
    """What the candidate changes and a running process cannot."""
    found = []
    for path, after in candidate.fixed.items():
        if after == (before := started.fixed[path]):
            continue
        change = "" if path in _SECRETS else f" from {shown(before)} to {shown(after)}"
        move = _WORKERS if path.startswith("timers.") else "restart the service"
        words = f"cannot change{change} while running: {move}"
        found.append(Fault(f"{source}: {path}", change.strip() or "a change", move, words))
    return found


def merged(started: CandidateConfig, candidate: CandidateConfig) -> Settings:
    """The candidate's settings with what this process was started with. ConfigError if the spans
    of time do not go together."""
    fixed, new = started.settings, candidate.settings
    kept = {name: getattr(fixed.timers, name) for name in AGENT_TIMERS}
    timers = replace(new.timers, **kept)
    if faults := timers.faults():
        raise ConfigError(faults)
    return replace(
        new,
        project=fixed.project,
        names=fixed.names,
        timers=timers,
        database_url=fixed.database_url,
        api_database_url=fixed.api_database_url,
        database_roles=fixed.database_roles,
        pubsub_host=fixed.pubsub_host,
        cloud=fixed.cloud,
        store_url=fixed.store_url,
        log_level=fixed.log_level,
        submit_topics=fixed.submit_topics,
        audit=fixed.audit,
        api=fixed.api,
    )


def removed_clusters(before: CandidateConfig | None, after: CandidateConfig) -> tuple[str, ...]:
    """Clusters that would not be there any more."""
    if before is None:
        return ()
    left = {cluster.name for cluster in after.settings.clusters}
    return tuple(c.name for c in before.settings.clusters if c.name not in left)


def busy_faults(source: str, jobs: Mapping[str, int]) -> list[Fault]:
    """A cluster with work left cannot go."""
    return [
        Fault(
            f"{source}: clusters.{name}",
            f"nothing, but it has {_jobs(count)}",
            "the cluster with `drain: true` until its jobs have ended",
        )
        for name, count in sorted(jobs.items())
    ]


def _jobs(count: int) -> str:
    return "1 job that has not ended" if count == 1 else f"{count} jobs that have not ended"


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """The value of a dotted path; None if it is not there."""
    found: Any = values
    for word in path.split("."):
        found = found.get(word) if isinstance(found, Mapping) else None
    return found


def digest_of(shared: Mapping[str, Any]) -> str:
    """Equal for documents that say the same in the same words, whatever the order of their keys."""
    text = json.dumps(shared, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def own_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of a document: what belongs to one process, for writing it back beside a version."""
    kept: dict[str, Any] = {}
    for path in PROCESS_KEYS:
        value = value_at(values, path)
        if value is not None:
            section, _, key = path.rpartition(".")
            (kept.setdefault(section, {}) if section else kept)[key] = value
    return kept


def _without(values: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    left = copy.deepcopy(dict(values))
    for path in paths:
        section, _, key = path.rpartition(".")
        inner = left.get(section) if section else left
        if isinstance(inner, dict):
            inner.pop(key, None)
            if section and not inner:
                del left[section]
    return left


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime.date) else value
