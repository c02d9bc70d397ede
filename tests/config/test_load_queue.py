"""The queue and its tenants, as they are written in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import load_settings
from config.settings import Settings
from core.queueing import QueuePolicy, QueueRule
from tests.config.test_load import MINIMAL


def load(tmp_path: Path, cluster: str = "", more: str = "") -> Settings:
    path = tmp_path / "zen.yaml"
    path.write_text(f"{MINIMAL}{cluster}{more}")
    return load_settings(path, {})


def test_fair_is_the_default(tmp_path: Path) -> None:
    """And needs no word."""
    settings = load(tmp_path)
    assert settings.clusters[0].queue is QueueRule.FAIR
    assert settings.queue == settings.rules.queue == QueuePolicy()
    assert not settings.create_tenants
    assert settings.confirm_above_usd_per_hour is None


def test_who_may_submit_is_one_question_with_two_names(tmp_path: Path) -> None:
    """`tenants.create_on_submit` wins over the older `tenants_strict`, which says the opposite; it
    stands beside the tenants' budgets."""
    both = "tenants_strict: true\ntenants: {create_on_submit: true, a: {usd_per_day: 5}}\n"
    settings = load(tmp_path, "", both)
    assert (settings.create_tenants, set(settings.tenants)) == (True, {"a"})
    assert load(tmp_path, "", "tenants_strict: false\n").create_tenants
    assert (
        load(tmp_path, "", "submit: {confirm_above_usd_per_hour: 20}\n").confirm_above_usd_per_hour
        == 20
    )


def test_rule_and_policy_are_read(tmp_path: Path) -> None:
    """Per cluster, and for all."""
    more = "queue: {half_life_s: 3600, hysteresis: 0.2}\ntenants_strict: true\n"
    settings = load(tmp_path, "    queue: fifo\n", more)
    assert settings.clusters[0].queue is QueueRule.FIFO
    assert (settings.queue.half_life_s, settings.queue.hysteresis) == (3600.0, 0.2)
    assert not settings.create_tenants


@pytest.mark.parametrize(
    ("cluster", "more", "named"),
    [
        ("    queue: lottery\n", "", "clusters.1xl4.queue"),
        ("", "queue: {half_life_s: 0}\n", "queue.half_life_s"),
        ("", "queue: {patience: -1}\n", "queue.patience"),
        ("", "queue: {hysteresis: 2}\n", "queue.hysteresis"),
        ("", "tenants_strict: maybe\n", "tenants_strict"),
        ("", "tenants: {create_on_submit: 3}\n", "tenants.create_on_submit"),
        ("", "submit: {confirm_above_usd_per_hour: -1}\n", "submit.confirm_above_usd_per_hour"),
    ],
)
def test_faults_are_named(tmp_path: Path, cluster: str, more: str, named: str) -> None:
    """The key, and what was expected."""
    with pytest.raises(ConfigError, match="expected") as caught:
        load(tmp_path, cluster, more)
    assert named in str(caught.value)
