"""Settings from YAML, an overlay and the environment, in this order; later ones win.

Every fault is collected; only when there is none are Settings built.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from config.access import build_access
from config.clusters import build_clusters
from config.document import Document, KeyPath, read_yaml
from config.errors import ConfigError
from config.keys import WILD, Key
from config.schema import KEYS, NAMES, TREE, Section
from config.settings import (
    ApiSettings,
    AuditSettings,
    SecretSettings,
    Settings,
    TlsFiles,
    WorkerSettings,
)
from core.browser_checks import is_loopback
from core.code_store import CodeRules
from core.containers import ContainerRules
from core.cost import TenantBudget
from core.errors import Fault
from core.health import HealthRules
from core.job import Budgets
from core.names import Names
from core.queueing import QueuePolicy
from core.retention import RetentionRules
from core.sandbox import SandboxRules
from core.submission import shown, unknown
from core.submit_topics import TopicBinding
from core.supply import CapacityPolicy
from core.timers import Timers

DEFAULT_PATH: Final = Path(__file__).with_name("zen.yaml")
_VARIABLES: Final[Mapping[str, Key]] = {key.variable: key for key in KEYS if key.variable}
_TYPO_CUTOFF = 0.85
_CREATE = "create_on_submit"


def load_settings(
    path: Path | None,
    environ: Mapping[str, str],
    overlay: Mapping[str, object] | None = None,
) -> Settings:
    """The Settings, or ConfigError with every fault. Without a path: the default that ships
    with the service. The overlay is merged by name; a None in it takes a key away."""
    document = read_yaml(path or DEFAULT_PATH)
    if document.faults and not document.values:
        raise ConfigError(document.faults)  # unreadable: nothing more can be said about it
    if overlay:
        document.overlay(overlay)
    return settings_of(document, environ)


def settings_of(
    document: Document, environ: Mapping[str, str], *, listens: bool = True
) -> Settings:
    """The Settings of a document under an environment, or ConfigError with every fault. The
    document is used up: the environment is written into it. `listens`: False for a document of
    another process, whose addresses are not ours to judge."""
    _override(document, environ)
    _spread_region_lists(document)
    values = _walk(document, TREE, document.values, ())
    assert isinstance(values, dict)
    clusters = build_clusters(document, values)
    timers = _timers(document, values["timers"])
    capacity = _capacity(document, values["capacity"])
    access = build_access(document, values["access"])
    submit_topics = _submit_topics(document, values)
    if listens:
        _refuse_open_listening(document, values["api"])
    if document.faults:
        raise ConfigError(document.faults)
    tenants = {name: dict(of) for name, of in values["tenants"].items() if name != _CREATE}
    projects = {name: tuple(of.pop("secret_projects")) for name, of in tenants.items()}
    accounts = {name: of.pop("google_account") for name, of in tenants.items()}
    return Settings(
        project=values["project"],
        names=Names(values["prefix"]),
        clusters=clusters,
        timers=timers,
        capacity=capacity,
        budgets=Budgets(**values["budgets"]),
        health=HealthRules(**values["health"]),
        containers=ContainerRules(
            **{**values["containers"], "mounts": tuple(values["containers"]["mounts"])}
        ),
        sandbox=SandboxRules(**values["sandbox"]),
        code=CodeRules(**values["code"]),
        secrets=SecretSettings(**values["secrets"]),
        workers=WorkerSettings(**values["workers"]),
        retention=RetentionRules(**values["retention"]),
        database_url=values["database_url"],
        api_database_url=values["api_database_url"],
        database_roles=values["database_roles"],
        pubsub_host=values["pubsub_host"],
        cloud={key.path: values[key.path] for key in KEYS if key.cloud},
        store_url=values["store_url"],
        api=_api(values["api"]),
        access=access,
        v1_results_url=values["v1_results_url"],
        queue_limit=values["queue_limit"],
        log_level=values["log_level"],
        prices_as_of=str(values["prices"]["as_of"]),
        queue=QueuePolicy(**values["queue"]),
        create_tenants=_create_tenants(values),
        single_tenant=values["single_tenant"],
        submit_topics=submit_topics,
        audit=AuditSettings(**values["audit"]),
        confirm_above_usd_per_hour=values["submit"]["confirm_above_usd_per_hour"],
        tenants={name: TenantBudget(**given) for name, given in tenants.items()},
        secret_projects=projects,
        google_accounts={name: account for name, account in accounts.items() if account},
    )


def _api(given: Mapping[str, Any]) -> ApiSettings:
    words: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    tls = words.pop("tls")
    return ApiSettings(tls=TlsFiles(**tls) if tls is not None else None, **words)


def _refuse_open_listening(document: Document, api: Mapping[str, Any]) -> None:
    """Keys and jobs' environments must not cross a network in clear."""
    host = api.get("host")
    if host is None or is_loopback(host) or api.get("tls") or api.get("behind_proxy"):
        return
    document.fault(
        ("api", "host"),
        shown(host),
        "a loopback address such as 127.0.0.1; or api.tls: {cert, key}; or api.behind_proxy: true "
        "where a proxy in front ends TLS",
    )


def _submit_topics(document: Document, values: Mapping[str, Any]) -> tuple[TopicBinding, ...]:
    """Never a topic that is ours for something else: our own messages are no submissions."""
    names = Names(values.get("prefix", ""))
    ours = (
        *(names.start_topic, names.stop_topic, names.heartbeat_topic, names.control_topic),
        names.submit_dead_topic,
    )
    found = []
    for topic, given in values["submit"]["topics"].items():
        if topic in ours:
            document.fault(
                ("submit", "topics", topic), topic, f"{names.submit_topic}, or a topic of your own"
            )
        elif "tenant" in given:
            found.append(TopicBinding(topic, given["tenant"], given.get("user")))
    return tuple(found)


def _create_tenants(values: Mapping[str, Any]) -> bool:
    """Whether a submission may bring a new tenant; by the older name if only that is said."""
    create, strict = values["tenants"].get(_CREATE), values["tenants_strict"]
    if create is None and strict is not None:
        return not strict
    return bool(create)


def overridden(document: Document, environ: Mapping[str, str]) -> Document:
    """Another document, with the environment written into it."""
    copy = document.copy()
    _override(copy, environ)
    return copy


def outline(document: Document, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Every key with its value or its default; what is at fault is left out. For comparing: a
    caller that needs the faults asks `settings_of`."""
    copy = overridden(document, environ or {})
    _spread_region_lists(copy)
    return _walk(copy, TREE, copy.values, ())


# --- the environment --------------------------------------------------------------------


def _override(document: Document, environ: Mapping[str, str]) -> None:
    for key in KEYS:
        # An empty DATABASE_URL or PUBSUB_EMULATOR_HOST means unset, as it does for others.
        if key.alias and environ.get(key.alias):
            _put_variable(document, key, key.alias, environ[key.alias])
    for name, word in environ.items():
        if not name.startswith("ZEN_"):
            continue
        if name in _VARIABLES:
            _put_variable(document, _VARIABLES[name], name, word)
        elif _is_misspelt(name):
            document.faults.append(_variable_fault(name))


def _put_variable(document: Document, key: Key, name: str, word: str) -> None:
    value = key.kind.from_text(word.strip())
    document.put(tuple(key.path.split(".")), value, f"environment {name}")


def _is_misspelt(name: str) -> bool:
    """Whether a variable was probably meant for us. Variables of other parts (ZEN_PYTHON,
    ZEN_JOB_ID) are nobody's misspelling: only a section (`__`) or a near miss tells one of ours."""
    close = difflib.get_close_matches(name, _VARIABLES, n=1, cutoff=_TYPO_CUTOFF)
    return bool(close) or "__" in name


def _variable_fault(name: str) -> Fault:
    return unknown("variable", name, _VARIABLES, f"environment {name}")


# --- the walk ---------------------------------------------------------------------------


def _spread_region_lists(document: Document) -> None:
    """`regions: [a, b]` is short for `regions: {a: {}, b: {}}`."""
    clusters = document.values.get("clusters")
    if not isinstance(clusters, dict):
        return
    for name, cluster in clusters.items():
        if not isinstance(cluster, dict) or not isinstance(cluster.get("regions"), list):
            continue
        path = ("clusters", name, "regions")
        spread: dict[str, object] = {}
        for region in cluster["regions"]:
            if not isinstance(region, str):
                document.fault(path, shown(region), "a region, e.g. us-central1")
            elif region in spread:
                document.fault(path, f"{region} twice", "each region once")
            else:
                spread[region] = {}
        cluster["regions"] = spread


def _walk(document: Document, section: Section, given: object, at: KeyPath) -> dict[str, Any]:
    """The section with defaults filled in. What is wrong is noted and left out."""
    if given is None:
        given = {}
    if not isinstance(given, dict):
        document.fault(at, shown(given), "a mapping")
        return {}
    if section.any_name is not None:
        return _walk_names(document, section, section.any_name, given, at)
    for word in given:
        if word not in section.children:
            document.unknown_key((*at, word), section.children)
    values: dict[str, Any] = {}
    for word, child in section.children.items():
        if isinstance(child, Section):
            values[word] = _walk(document, child, given.get(word), (*at, word))
        else:
            _take(document, child, given, (*at, word), values)
    return values


def _walk_names(
    document: Document, section: Section, inner: Section | Key, given: dict[str, Any], at: KeyPath
) -> dict[str, Any]:
    names = NAMES[f"{section.path}.*"]
    values: dict[str, Any] = {}
    for word, child in section.children.items():
        if isinstance(child, Key) and word != WILD:
            _take(document, child, given, (*at, word), values)
    for word, value in given.items():
        path = (*at, word)
        if word in section.children:
            continue
        if not names.good(word):
            document.fault(path, f"the name {shown(word)}", names.expected)
        elif isinstance(inner, Section):
            values[word] = _walk(document, inner, value, path)
        else:
            _take(document, inner, given, path, values)
    return values


def _take(
    document: Document, key: Key, given: dict[str, Any], path: KeyPath, values: dict[str, Any]
) -> None:
    word = path[-1]
    if word not in given:
        if key.required:
            document.fault(path, "nothing", key.kind.expected)
        else:
            values[word] = key.default
        return
    value = given[word]
    if key.kind.good(value):
        values[word] = value
    else:
        document.fault(path, "(hidden)" if key.secret else shown(value), key.kind.expected)


# --- timers -----------------------------------------------------------------------------


def _timers(document: Document, given: Mapping[str, object]) -> Timers:
    names = [field.name for field in dataclasses.fields(Timers)]
    if any(name not in given for name in names):
        return Timers()  # one of them is at fault already: relations would only repeat it
    timers = Timers(**{name: float(str(given[name])) for name in names})
    for fault in timers.faults():
        path = tuple(fault.field.split("."))
        document.fault(path, fault.got, fault.expected)
    return timers


def _capacity(document: Document, given: Mapping[str, Any]) -> CapacityPolicy:
    if any(field.name not in given for field in dataclasses.fields(CapacityPolicy)):
        return CapacityPolicy()  # one of them is at fault already
    policy = CapacityPolicy(**given)
    for fault in policy.faults():
        document.fault(tuple(fault.field.split(".")), fault.got, fault.expected)
    return policy
