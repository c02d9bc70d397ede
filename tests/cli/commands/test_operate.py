"""Configuration, infrastructure commands, checks, and the world that a configuration becomes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.metadata import TIMERS as READ_BY_THE_AGENT
from cli.commands import checks
from cli.local.active_config import choose
from cli.local.config import TIMERS, clean_environment, vm_cap, write_config
from cli.local.pretend_cloud import build_world
from cli.local.process import ChildFailed
from cli.local.v1_workers import v1_metadata
from cli.paths import ROOT, Home, Running
from config.load import DEFAULT_PATH, load_settings
from core.names import Names
from core.timers import AGENT_TIMERS, Timers
from db import migrate
from sim.cloud.world import parse_world

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]


def test_config_check_sums_up(zen: Zen) -> None:
    """A good configuration: clusters, regions, limits, prices."""
    ended = zen("config", "check")
    assert ended.code == 0
    assert "\nok: project " in ended.out
    assert "which ships with zen" in ended.out
    assert "2xa100-40gb" in ended.out
    assert zen("config", "check", "--json").json["ok"] is True


def test_config_check_names_every_fault(zen: Zen, tmp_path: Path) -> None:
    """Every fault at once, each with its line; exit code 1."""
    file = tmp_path / "bad.yaml"
    file.write_text("project: X\nnonsense: 1\n")
    ended = zen("config", "check", str(file))
    assert ended.code == 1
    assert "bad.yaml:1: project" in ended.err
    assert "bad.yaml:2: nonsense" in ended.err
    faults = zen("config", "check", str(file), "--json").json["faults"]
    assert len(faults) >= 2


def test_config_show_hides_the_password(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's URL may hold a password."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://zen:hush@db/zen")
    ended = zen("config", "show")
    assert "hush" not in ended.out
    assert zen("config", "show", "--json").json["database_url"] == "(hidden)"


@pytest.fixture
def running(tmp_path: Path, home: Path) -> Running:
    """A stack that runs in this state directory, with a configuration of its own."""
    file = tmp_path / "stack.yaml"
    write_config(file, None, tmp_path / "store", vm_cap(8192, 1), {"clusters": {}})
    file.write_text(file.read_text().replace("my-gpu-project", "the-running-one"))
    found = Running(
        *(os.getpid(), "http://127.0.0.1:9", "http://127.0.0.1:9", "127.0.0.1:8", "", ""),
        config=str(file),
        database="postgresql://127.0.0.1:7/stack",
    )
    place = Home(home)
    place.make()
    place.write(found)
    return found


def test_config_commands_read_what_runs(zen: Zen, api: Api, running: Running) -> None:
    """Without a file, check and show read the running stack's, and say so."""
    ended = zen("config", "check")
    assert ended.out.startswith(f"read {running.config}, which the running stack reads")
    assert "ok: project the-running-one" in ended.out
    checked = zen("config", "check", "--json").json
    assert (checked["file"], checked["running"]) == (running.config, True)
    ended = zen("config", "show", "--json")
    assert ended.json["project"] == "the-running-one"
    assert ended.json["pubsub_host"] == running.bus
    assert running.config in ended.err


def test_config_show_tells_of_another_version_in_force(
    zen: Zen, api: Api, running: Running
) -> None:
    """A file whose newest edit was refused is not in force; the version that is gets named."""
    seen = {"path": running.config, "state": "refused", "diff": [], "faults": []}
    api.on("GET", "/api/v1/config", {"file": seen, "in_force": {"version": 3}})
    assert "the active version is 3, not this file (refused)" in zen("config", "show").err


def test_a_named_file_wins_over_what_runs(running: Running, tmp_path: Path) -> None:
    """A file that is named is read as it is, with the environment alone."""
    found = choose(str(tmp_path / "my.yaml"), {"A": "b"}, running)
    assert (found.file, found.environ) == (tmp_path / "my.yaml", {"A": "b"})
    assert not found.running


def test_addresses_of_the_running_stack(running: Running) -> None:
    """Its database and its bus, unless the environment names others; a stack that has ended has
    none."""
    found = choose(None, {}, running).load()
    assert found.database_url == "postgresql://127.0.0.1:7/stack"
    assert found.pubsub_host == "127.0.0.1:8"
    for variable in ("DATABASE_URL", "ZEN_DATABASE_URL"):
        other = choose(None, {variable: "postgresql://elsewhere/zen"}, running).load()
        assert other.database_url == "postgresql://elsewhere/zen"
    assert choose(None, {}, None).file is None


def test_db_current_asks_the_running_stack(
    zen: Zen, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zen db current asks the database of the stack that runs."""
    monkeypatch.setattr(migrate, "current", lambda url: f"asked {url}")
    assert f"asked {running.database}" in zen("db", "current").out


def test_db_current_without_a_database(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer: one line that says how to name a database."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/zen")
    ended = zen("db", "current")
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "DATABASE_URL" in ended.err


def words_of(command: str) -> list[str]:
    """What a shell makes of it."""
    return shlex.split(command.replace("\\\n", " "))


def test_gcloud_commands_are_complete(zen: Zen) -> None:
    """A template with its metadata, then a group for each region, as the planner needs them."""
    ended = zen("infra", "gcloud", "--cluster", "1xt4", "--json")
    template, *groups = [words_of(command) for command in ended.json["commands"]]
    spec = load_settings(None, {}).cluster("1xt4")
    assert "--accelerator=type=nvidia-tesla-t4,count=1" in template
    assert "--maintenance-policy=TERMINATE" in template
    given = next(word for word in template if word.startswith("--metadata="))
    pairs = dict(pair.split("=", 1) for pair in given.removeprefix("--metadata=^;;^").split(";;"))
    assert pairs["zen-cluster"] == "1xt4"
    assert json.loads(pairs["zen-timers"])["heartbeat_s"] == 10
    assert len(groups) == len(spec.regions)
    for group, region in zip(groups, spec.regions, strict=True):
        assert group[5] == Names().mig("1xt4", region.region)
        assert group[6:] == [
            "--project=my-gpu-project",
            f"--region={region.region}",
            f"--zones={','.join(region.zones)}",
            f"--template={template[4]}",
            f"--base-instance-name={Names().vm_base('1xt4', region.region)}",
            "--size=0",
            "--target-distribution-shape=any",
            "--instance-redistribution-type=NONE",
            "--default-action-on-vm-failure=do-nothing",
        ]


def test_gcloud_names_fit_googles_limit(zen: Zen) -> None:
    """Every name that the script makes has at most 63 characters."""
    commands = zen("infra", "gcloud", "--json").json["commands"]
    words = [words_of(command) for command in commands]
    names = [w[4] if "instance-templates" in w else w[5] for w in words]
    assert max(len(name) for name in names) <= 63
    assert len(set(names)) == len(names)


def test_a_local_run_takes_changes_of_any_section(tmp_path: Path) -> None:
    """Merged over the shipped file; what they say of tenants wins over the local default."""
    more = {"api": {"metrics_port": 9091}, "tenants": {"create_on_submit": False}}
    made = write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2), more)
    assert (made.api.metrics_port, made.api.port) == (9091, 8080)
    assert "create_on_submit: false" in (tmp_path / "zen.yaml").read_text()


@pytest.mark.parametrize(("more", "forgiven"), [({}, 100), ({"budgets": {"losses": 2}}, 2)])
def test_a_laptop_that_goes_down_loses_its_vms_often(
    tmp_path: Path, more: dict[str, object], forgiven: int
) -> None:
    """Each `zen down` loses them: a job that runs over many is not to blame."""
    made = write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2), more)
    assert made.budgets.losses == forgiven


def test_spot_templates_say_so(zen: Zen, tmp_path: Path) -> None:
    """A spot cluster's VMs are asked for as spot, and stopped when taken back."""
    base = write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2), SPOT)
    assert base.cluster("1xl4").spot
    ended = zen("infra", "gcloud", "--cluster", "1xl4", "--config", str(tmp_path / "zen.yaml"))
    assert "--provisioning-model=SPOT" in ended.out
    assert "--instance-termination-action=STOP" in ended.out


@pytest.mark.parametrize(
    ("knows", "flag"), [("--preemption-notice-duration=D", True), ("--other", False)]
)
def test_spot_templates_ask_for_the_whole_notice(
    zen: Zen, tmp_path: Path, knows: str, flag: bool
) -> None:
    """120 s before the soft off, by a gcloud that has the flag; an older one makes the template
    without it and says what that costs."""
    write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2), SPOT)
    ended = zen("infra", "gcloud", "--cluster", "1xl4", "--config", str(tmp_path / "zen.yaml"))
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f'#!/bin/sh\necho "$@ {knows}"\n')
    gcloud.chmod(0o700)
    script = tmp_path / "groups.sh"
    script.write_text(ended.out)
    given = {"ZEN_IMAGE": "i", "ZEN_IMAGE_PROJECT": "p", "ZEN_SERVICE_ACCOUNT": "s"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", str(script)],
        env={**given, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("--preemption-notice-duration=120s" in ran.stdout) is flag
    assert ("spot VMs will be told 30 s" in ran.stderr) is not flag


def test_templates_for_requests_say_so(zen: Zen, tmp_path: Path) -> None:
    """VMs that come together are deleted at the end of their run; another template, another name;
    one that says nothing of it stays as it was."""
    flex = {"clusters": {"1xl4": {"flex_start_wait_s": 600}}}
    write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2), flex)
    write_config(tmp_path / "plain.yaml", None, tmp_path, vm_cap(10_000, 2), {})
    told = [
        zen("infra", "gcloud", "--cluster", "1xl4", "--config", str(tmp_path / file)).out
        for file in ("zen.yaml", "plain.yaml")
    ]
    assert "--provisioning-model=FLEX_START" in told[0]
    assert "--instance-termination-action=DELETE" in told[0]
    assert "--provisioning-model" not in told[1]
    names = [re.search(r"instance-templates create (\S+)", text) for text in told]
    assert names[0] is not None
    assert names[1] is not None
    assert names[0][1] != names[1][1]


def test_unknown_cluster_is_one_line(zen: Zen) -> None:
    """With the nearest ones that exist."""
    ended = zen("infra", "gcloud", "--cluster", "1xl5")
    assert ended.code == 1
    assert "1xl4" in ended.err
    assert ended.err.count("\n") == 1


def test_infra_apply_wants_to_know_what(zen: Zen) -> None:
    """Nothing is applied by accident."""
    assert zen("infra", "apply").code == 2


def test_database_that_is_away_is_one_line(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """db current on a dead database: an error in words, no traceback."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://zen@127.0.0.1:1/zen")
    ended = zen("db", "current")
    assert ended.code == 1
    assert "the database does not answer" in ended.err


# --- the local run ------------------------------------------------------------------------------

SPOT = {"clusters": {"1xl4": {"spot": True}}}


@pytest.mark.parametrize(
    ("available_mb", "cores", "vms", "why"),
    [
        (24_000, 2, 16, "8 for each of 2 cores"),
        (1_200, 8, 5, "half of 1.2 GB free memory"),
        (100, 1, 1, "half of 0.1 GB free memory"),
    ],
)
def test_vm_cap_is_the_smaller_of_memory_and_cores(
    available_mb: float, cores: int, vms: int, why: str
) -> None:
    """At least one VM, and the note says which of the two binds."""
    cap = vm_cap(available_mb, cores)
    assert cap.vms == vms
    assert why in cap.note


def test_embedded_configuration_caps_and_hurries(tmp_path: Path) -> None:
    """Every cluster's limit is at most the cap and never above its own; timers are short."""
    cap = vm_cap(1_000, 1)
    settings = write_config(tmp_path / "zen.yaml", None, tmp_path / "a store", cap)
    own = load_settings(None, {})
    assert [c.vm_max for c in settings.clusters] == [min(cap.vms, c.vm_max) for c in own.clusters]
    assert settings.timers.idle_timeout_s == TIMERS["idle_timeout_s"] == 60
    assert settings.store_url == f"file://{tmp_path}/a%20store"
    assert load_settings(tmp_path / "zen.yaml", {}) == settings


def test_timers_that_a_file_sets_are_never_shortened(tmp_path: Path) -> None:
    """The others are, as long as they go together with what the file says."""
    own = tmp_path / "own.yaml"
    text = DEFAULT_PATH.read_text().partition("timers:")
    rest = "budgets:" + text[2].partition("budgets:")[2]

    def written(timers: str) -> Timers:
        own.write_text(f"{text[0]}timers: {timers}\n{rest}")
        return write_config(tmp_path / "zen.yaml", own, tmp_path, vm_cap(10_000, 2)).timers

    found = written("{lost_after_s: 90, boot_timeout_s: 300}")
    assert (found.lost_after_s, found.boot_timeout_s) == (90, 300)
    assert found.heartbeat_s == TIMERS["heartbeat_s"]
    slow = written("{heartbeat_s: 15}")
    assert (slow.heartbeat_s, slow.lost_after_s) == (15, Timers().lost_after_s)


def test_embedded_configuration_keeps_a_cpu_vm_ready(tmp_path: Path) -> None:
    """The shipped file keeps no VM without work; a local run keeps one without GPUs, where the
    machine carries more than that one."""
    assert {c.vm_min for c in load_settings(None, {}).clusters} == {0}
    local = write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2))
    assert {c.name: c.vm_min for c in local.clusters if c.vm_min} == {"0xcpu": 1}
    tiny = write_config(tmp_path / "tiny.yaml", None, tmp_path, vm_cap(100, 1))
    assert {c.vm_min for c in tiny.clusters} == {0}


def test_templates_without_gpus_attach_none(zen: Zen) -> None:
    """An n1 machine of a CPU cluster gets no accelerator; its agent is told of no GPUs."""
    ended = zen("infra", "gcloud", "--cluster", "0xcpu")
    assert "--accelerator" not in ended.out
    assert "zen-gpus=0;;" in ended.out


def test_local_processes_see_no_real_world() -> None:
    """A DATABASE_URL for something else is never used, let alone migrated, by a local run."""
    given = {"DATABASE_URL": "x", "GOOGLE_APPLICATION_CREDENTIALS": "y", "PATH": "/bin"}
    assert clean_environment(given) == {"PATH": "/bin"}


def test_templates_of_v1_workers_say_what_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZEN_V1_METADATA is on the VMs of v1 clusters and no others; nonsense is refused."""
    changes = {"clusters": {"1xl4": {"worker": "v1", "trusted_tenants_only": True, "vm_min": 0}}}
    cap = vm_cap(10_000, 2)
    settings = write_config(tmp_path / "zen.yaml", None, tmp_path, cap, changes)
    monkeypatch.setenv("ZEN_V1_METADATA", "PZ_ENV=dev,OTHER=a=b")
    world = parse_world(json.loads(json.dumps(build_world(settings, 7, "keys", "", v1_metadata()))))
    told = {mig.name: dict(mig.metadata) for mig in world.migs}
    for name, words in told.items():
        assert (words.get("PZ_ENV"), words.get("OTHER")) == (
            ("dev", "a=b") if "-1xl4-" in name else (None, None)
        )
    monkeypatch.setenv("ZEN_V1_METADATA", "PZ_ENV")
    with pytest.raises(ChildFailed, match="expected PZ_ENV=dev"):
        v1_metadata()


def test_world_has_a_group_for_each_cluster_and_region(tmp_path: Path) -> None:
    """The pretend cloud accepts the world, and every group is one that the scheduler looks for."""
    settings = write_config(tmp_path / "zen.yaml", None, tmp_path, vm_cap(10_000, 2), SPOT)
    world = parse_world(json.loads(json.dumps(build_world(settings, 7, "keys"))))
    assert world.physics.vms_max == 7
    found = {(mig.name, mig.region) for mig in world.migs}
    assert found == {
        (settings.names.mig(cluster.name, region.region), region.region)
        for cluster in settings.clusters
        for region in cluster.regions
    }
    spot = next(mig for mig in world.migs if "-1xl4-" in mig.name)
    assert spot.spot
    assert dict(spot.metadata)["zen-cluster"] == "1xl4"
    v100 = next(mig for mig in world.migs if "-4xv100-" in mig.name)
    assert (v100.gpus, v100.accelerator) == (4, "nvidia-tesla-v100")


def test_templates_say_what_the_agent_reads() -> None:
    """The agent refuses timers that it does not know, and should be told all that it does."""
    assert set(AGENT_TIMERS) == set(READ_BY_THE_AGENT)


# --- checks -------------------------------------------------------------------------------------


def test_check_runs_every_step_and_tells_which_failed(
    zen: Zen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing step does not hide the later ones; the exit code is 1."""
    steps = (checks.CheckStep("bad", ("false",)), checks.CheckStep("good", ("true",)))
    monkeypatch.setattr(checks, "steps", lambda: steps)
    ended = zen("check")
    assert ended.code == 1
    assert [line.split()[:2] for line in ended.out.splitlines()] == [
        ["FAILED", "bad"],
        ["ok", "good"],
    ]
    assert ended.err == "zen: check failed: bad\n"
    told = zen("check", "--json").json
    assert [step["exit_code"] for step in told["steps"]] == [1, 0]


def test_examples_name_their_own_submit_line() -> None:
    """A reader of an example sees how to submit it."""
    for name in ("sleep.sh", "multi_gpu.py", "train.py", "train.yaml"):
        text = (ROOT / "examples" / name).read_text(encoding="utf-8")
        assert "zen submit" in "\n".join(text.splitlines()[:10])
        assert f"examples/{name}" in text
