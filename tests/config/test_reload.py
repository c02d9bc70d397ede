"""Documents as candidates: what they change, what a running process refuses, what is hidden."""

from __future__ import annotations

from typing import Any

import pytest

from config.diff import differences
from config.document import read_bytes
from config.errors import ConfigError
from config.load import outline
from config.reload import (
    CandidateConfig,
    Reader,
    busy_faults,
    digest_of,
    merged,
    own_keys,
    removed_clusters,
    restart_faults,
)
from config.schema import KEYS
from tests.config.test_load import MINIMAL

READER = Reader({})
TWO = (
    MINIMAL
    + "  2xl4:\n    machine_type: g2-standard-8\n    vm_max: 1\n    regions: [us-central1]\n"
)
MACHINE = (
    "  g2-standard-8:\n    {cpus: 8, memory_gb: 32, gpu_type: l4, gpus: 2, "
    "usd_per_hour: 0.4, spot_usd_per_hour: 0.2}\n"
)
TWO = TWO.replace("prices:\n", MACHINE + "prices:\n", 1)
JUNK: tuple[Any, ...] = ("-1", "x y", "[1]", "{a: 1}", "null", "true", "1.5e99", "2026-13-45", "''")


def read(text: str) -> CandidateConfig:
    return READER.file(text.encode(), "zen.yaml")


def changed(text: str, before: str = MINIMAL) -> tuple[str, ...]:
    return read(text).diff(read(before))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MINIMAL.replace("vm_max: 3", "vm_max: 6"), ("clusters.1xl4.vm_max: 3 → 6",)),
        (MINIMAL + "    drain: true\n", ("clusters.1xl4.drain: false → true",)),
        (
            MINIMAL.replace("[us-central1]", "{us-central1: {zones: [a]}}"),
            ("clusters.1xl4.regions.us-central1.zones: not set → [a]",),
        ),
        (MINIMAL + "timers: {idle_timeout_s: 60}\n", ("timers.idle_timeout_s: 600 → 60",)),
        (MINIMAL + "budgets: {losses: 7}\n", ("budgets.losses: 5 → 7",)),
        (
            MINIMAL.replace("usd_per_hour: 0.5", "usd_per_hour: 0.75"),
            ("prices.gpus.l4.us-central1.usd_per_hour: 0.5 → 0.75",),
        ),
        (MINIMAL + "# a comment\n", ()),
        (MINIMAL.replace("[us-central1]", "{us-central1: {}}"), ()),
        (MINIMAL + "api: {port: 9}\ndatabase_url: postgresql://me:hush@db/zen\n", ()),
    ],
)
def test_changes_in_words(text: str, words: tuple[str, ...]) -> None:
    """Each key that differs is one line; what is of one process, and how it is written, is none."""
    assert changed(text) == words


def test_names_that_come_and_go() -> None:
    """A cluster or a region that is new has a plus, and a cluster its size."""
    line = "+ clusters.2xl4 (g2-standard-8, at most 1 VMs in us-central1)"
    assert line in changed(TWO)
    assert "- clusters.2xl4" in read(MINIMAL).diff(read(TWO))
    more = TWO.replace(
        "      us-central1: [a, b]", "      us-central1: [a, b]\n      us-east1: [b]"
    )
    more = more.replace("regions: [us-central1]", "regions: {us-central1: {}, us-east1: "
                        "{usd_per_hour: 1, spot_usd_per_hour: 1}}", 1)  # fmt: skip
    assert "+ clusters.1xl4.regions.us-east1" in changed(more, TWO)
    assert "- clusters.1xl4.regions.us-east1" in changed(TWO, more)


def test_a_long_diff_is_cut() -> None:
    """Nobody reads a thousand lines; how many were left out is said."""
    lines = read(MINIMAL).diff(None)
    many = "".join(f"  {n}xl4: {{machine_type: m, vm_max: 1}}\n" for n in range(2, 600))
    document = read_bytes((MINIMAL + many).encode(), "zen.yaml")
    cut = differences(outline(read_bytes(MINIMAL.encode(), "")), outline(document))
    assert len(cut) == 201
    assert cut[-1] == "… and 398 more"
    assert len(lines) < 201


def test_digest_knows_content_not_form() -> None:
    """Order of keys and comments do not matter, values do; secrets are in neither."""
    head, _, tail = MINIMAL.partition("gpus:\n")
    reordered = "gpus:\n" + tail + head
    assert read(MINIMAL).digest == read(reordered).digest
    assert read(MINIMAL).digest != read(MINIMAL.replace("vm_max: 3", "vm_max: 4")).digest
    secret = read(MINIMAL + "database_url: postgresql://me:hush@db/zen\n")
    assert "hush" not in repr((secret.document, secret.outline))
    assert secret.digest == read(MINIMAL).digest == digest_of(secret.document)
    own = read(MINIMAL + "log_level: debug\n")
    assert (own.document["log_level"], own.digest) == ("debug", secret.digest)


def test_what_needs_a_restart_is_named() -> None:
    """Names, addresses and the spans that workers were started with: each is named with its key,
    and a password in an address is not told."""
    text = MINIMAL.replace("some-project", "other-project") + (
        "prefix: other\napi: {port: 9}\ndatabase_url: postgresql://me:hush@db/zen\n"
        "timers: {heartbeat_s: 9, publish_timeout_s: 9, idle_timeout_s: 60}\n"
    )
    faults = restart_faults(read(MINIMAL), read(text), "zen.yaml")
    keys = {fault.field.removeprefix("zen.yaml: ") for fault in faults}
    assert keys == {
        *("project", "prefix", "api.port", "database_url"),
        *("timers.heartbeat_s", "timers.publish_timeout_s"),
    }
    assert all("restart" in fault.expected for fault in faults)
    assert "hush" not in "".join(str(fault) for fault in faults)


def test_environment_wins_also_over_an_edit() -> None:
    """A key that a variable sets is not changed by the file, so it needs no restart either."""
    reader = Reader({"ZEN_API__PORT": "1234", "DATABASE_URL": "postgresql://here/zen"})
    before = reader.file(MINIMAL.encode(), "zen.yaml")
    after = reader.file((MINIMAL + "api: {port: 9}\n").encode(), "zen.yaml")
    assert restart_faults(before, after, "zen.yaml") == []
    assert merged(before, after).api.port == 1234
    assert merged(before, after).database_url == "postgresql://here/zen"


def test_a_process_keeps_what_it_was_started_with() -> None:
    """Adopting a version changes limits and timers, not the process's own addresses, and never
    the spans that its workers know."""
    started = READER.file((MINIMAL + "api: {port: 9}\n").encode(), "zen.yaml")
    text = MINIMAL.replace("vm_max: 3", "vm_max: 5") + "timers: {heartbeat_s: 11, lost_after_s: 99}"
    settings = merged(started, READER.stored(read(text).document, 2))
    assert settings.clusters[0].vm_max == 5
    assert settings.timers.lost_after_s == 99
    assert (settings.api.port, settings.timers.heartbeat_s) == (9, 10)


def test_spans_that_do_not_go_together_are_not_adopted() -> None:
    """A version whose spans fit only newer workers is refused by a process with older ones."""
    started = read(MINIMAL)
    text = MINIMAL + "timers: {self_stop_after_s: 20, lost_after_s: 50}"
    with pytest.raises(ConfigError, match="self_stop_after_s"):
        merged(started, READER.stored(read(text).document, 2))


def test_removed_clusters_and_their_jobs() -> None:
    """Clusters that would go are named; those with jobs are faults that say what to do."""
    assert removed_clusters(read(TWO), read(MINIMAL)) == ("2xl4",)
    assert removed_clusters(None, read(MINIMAL)) == ()
    (fault,) = busy_faults("zen.yaml", {"2xl4": 1})
    assert "1 job that has not ended" in str(fault)
    assert "drain: true" in str(fault)


def test_a_drained_cluster_has_no_room() -> None:
    """`drain: true` makes both limits zero, and is remembered."""
    (cluster,) = read(MINIMAL.replace("vm_max: 3", "vm_max: 3\n    vm_min: 1") + "    drain: true\n"
                      ).settings.clusters  # fmt: skip
    assert (cluster.drain, cluster.vm_max, cluster.vm_min) == (True, 0, 0)


def test_salvage_of_a_bad_file() -> None:
    """What belongs to the process is found even if the rest is nonsense."""
    reader = Reader({"ZEN_API__PORT": "99"})
    bad = "database_url: postgresql://db/zen\nnonsense: 1\napi: {host: a b}\n"
    kept = reader.salvage(read_bytes(bad.encode(), "zen.yaml"))
    assert kept.values["database_url"] == "postgresql://db/zen"
    assert kept.values["api"]["port"] == 99  # type: ignore[index]
    assert "host" not in kept.values["api"]  # type: ignore[operator]


def test_own_keys_are_those_of_one_process() -> None:
    """With the secret: a user who writes a version back into a file keeps them as they are
    there."""
    text = "api: {port: 9}\nlog_level: debug\ndatabase_url: postgresql://me:hush@db/zen\n"
    found = own_keys(read_bytes((MINIMAL + text).encode(), "").values)
    assert found == {
        "log_level": "debug",
        "api": {"port": 9},
        "database_url": "postgresql://me:hush@db/zen",
    }


@pytest.mark.parametrize("key", [key.path for key in KEYS])
def test_no_value_of_any_key_is_a_crash(key: str) -> None:
    """Whatever stands at any key, it is accepted or it is a fault with its place: a traceback
    would leave the watcher of the file without an answer."""
    names = iter(["l4", "us-central1"] if "prices" in key else ["1xl4", "us-central1"])
    if key.startswith("gpus"):
        names = iter(["l4", "us-central1"])
    if key.startswith("machines"):
        names = iter(["g2-standard-4"])
    path = [next(names) if word == "*" else word for word in key.split(".")]
    document = read_bytes(MINIMAL.encode(), "zen.yaml")
    for junk in JUNK:
        copy = document.copy()
        value = read_bytes(f"v: {junk}".encode(), "").values.get("v")
        copy.put(tuple(path), value, "zen.yaml:1")
        try:
            READER.document(copy)
        except ConfigError as error:
            assert all(fault.expected for fault in error.faults)


def test_grants_are_named_when_they_come_change_and_go() -> None:
    """The audit log has these lines: who got which role must stand there."""
    none: dict[str, object] = {"access": {"groups": {}}}
    roles = [{"access": {"groups": {"ml": [{"tenant": "red", "role": role}]}}} for role in "ab"]
    assert differences(none, roles[0]) == ("+ access.groups.ml: [tenant red, role a]",)
    assert differences(roles[0], none) == ("- access.groups.ml: [tenant red, role a]",)
    changed = "access.groups.ml: [tenant red, role a] → [tenant red, role b]"
    assert differences(roles[0], roles[1]) == (changed,)
