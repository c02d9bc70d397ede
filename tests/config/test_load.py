"""Loading settings: YAML, overlay, environment, and every fault at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import DEFAULT_PATH, load_settings
from config.settings import Settings, TlsFiles
from core.cost import TenantBudget
from core.errors import NotFound, ZenError
from core.retention import RetentionRules
from core.timers import Timers

MINIMAL = """\
project: some-project
gpus:
  l4:
    memory_gb: 24
    zones:
      us-central1: [a, b]
machines:
  g2-standard-4:
    {cpus: 4, memory_gb: 16, gpu_type: l4, gpus: 1, usd_per_hour: 0.2, spot_usd_per_hour: 0.1}
prices:
  as_of: 2026-08-21
  gpus:
    l4:
      us-central1: {usd_per_hour: 0.5, spot_usd_per_hour: 0.3}
clusters:
  1xl4:
    machine_type: g2-standard-4
    vm_max: 3
    regions: [us-central1]
"""


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "zen.yaml"
        path.write_text(text)
        return path

    return write


def faults_of(
    path: Path,
    environ: Mapping[str, str] | None = None,
    overlay: Mapping[str, object] | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ or {}, overlay)
    return [str(fault).replace(f"{path}:", "zen.yaml:") for fault in caught.value.faults]


def test_default_file_loads() -> None:
    """The configuration that ships with the service has no fault and the contract's machines."""
    settings = load_settings(None, {})
    machines = {cluster.name: cluster.machine_type for cluster in settings.clusters}
    assert machines["4xv100"] == "n1-highmem-16"
    assert machines["2xa100-40gb"] == "a2-highgpu-2g"
    assert machines["8xa100-80gb"] == "a2-ultragpu-8g"
    assert machines["8xh100-80gb"] == "a3-highgpu-8g"
    assert machines["0xcpu"] == "n1-standard-4"
    assert len(machines) == 20
    for cluster in settings.clusters:
        assert 3 <= len(cluster.regions) <= 6
        assert 1 <= cluster.vm_max <= 8
        assert cluster.spot == (cluster.name == "4xt4")
        assert all(0 < r.spot_usd_per_hour < r.usd_per_hour for r in cluster.regions)


CPU = MINIMAL.replace(
    "machines:\n",
    "machines:\n  n1: {cpus: 4, memory_gb: 15, usd_per_hour: 0.19, spot_usd_per_hour: 0.1}\n",
)


def test_cpu_cluster_has_no_gpu_type(write: Write) -> None:
    """A cluster without GPUs costs what its machine does, in zones that its regions name."""
    regions = "regions: {us-east1: {zones: [b]}}"
    text = f"{CPU}  0xcpu:\n    machine_type: n1\n    vm_max: 2\n    {regions}\n"
    cluster = load_settings(write(text), {}).cluster("0xcpu")
    assert (cluster.gpus, cluster.slots, cluster.gpu_memory_gb) == (0, 1, 0)
    assert cluster.region("us-east1").zones == ("us-east1-b",)
    assert cluster.usd_per_hour("us-east1") == pytest.approx(0.19)


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("0xcpu", "regions: [us-east1]", "clusters.0xcpu.regions.us-east1.zones"),
        ("0xcpu", "regions: {us-east1: {zones: [b]}}\n    share: true", "one job at a time"),
        ("0xcpu", "regions: {us-east1: {zones: [b]}}\n    worker: v1", "clusters.0xcpu.worker"),
        ("0xl4", "regions: [us-central1]", "0xcpu"),
        ("1xcpu", "regions: [us-central1]", "the GPU type 'cpu'"),
    ],
)
def test_faults_of_a_cpu_cluster(write: Write, name: str, more: str, expected: str) -> None:
    """What VMs without GPUs cannot be is refused, with the key."""
    text = f"{CPU}  {name}:\n    machine_type: n1\n    vm_max: 2\n    {more}\n"
    assert expected in " ".join(faults_of(write(text)))


def test_minimal_file(write: Write) -> None:
    """A price is host + GPUs, zones are spelt out, and what is not said has its default."""
    settings = load_settings(write(MINIMAL), {})
    cluster = settings.cluster("1xl4")
    assert cluster.region("us-central1").zones == ("us-central1-a", "us-central1-b")
    assert cluster.region("us-central1").usd_per_hour == pytest.approx(0.7)
    assert cluster.region("us-central1").spot_usd_per_hour == pytest.approx(0.4)
    assert (cluster.cpus, cluster.memory_gb, cluster.gpu_memory_gb) == (4, 16, 24)
    assert settings.timers == Timers()
    assert (settings.api.host, settings.api.port) == ("127.0.0.1", 8080)
    assert settings.pubsub_host is None
    assert settings.prices_as_of == "2026-08-21"


def test_unknown_cluster_names_the_nearest(write: Write) -> None:
    """Asking for a cluster that is not there answers with the ones that are."""
    with pytest.raises(NotFound, match="1xl4"):
        load_settings(write(MINIMAL), {}).cluster("1xl40")


def test_environment_wins(write: Write) -> None:
    """Variables override the file and the overlay, each in the type of its key."""
    environ = {
        "DATABASE_URL": "postgresql://db/zen",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:8085",
        "ZEN_PROJECT": "other-project",
        "ZEN_TIMERS__IDLE_TIMEOUT_S": "30",
        "ZEN_API__PORT": "0",
        "ZEN_LOG_LEVEL": "debug",
        "ZEN_PYTHON": "/usr/bin/python3",
        "HOME": "/nowhere",
    }
    settings = load_settings(write(MINIMAL), environ, {"project": "overlay-project"})
    assert settings.project == "other-project"
    assert settings.database_url == "postgresql://db/zen"
    assert settings.pubsub_host == "127.0.0.1:8085"
    assert settings.timers.idle_timeout_s == 30
    assert settings.api.port == 0
    assert settings.log_level == "debug"


def test_own_variable_wins_over_the_shared_one(write: Write) -> None:
    """ZEN_DATABASE_URL heartbeats DATABASE_URL; an empty shared variable counts as unset."""
    environ = {
        "DATABASE_URL": "postgresql://one/zen",
        "ZEN_DATABASE_URL": "postgresql://two/zen",
        "PUBSUB_EMULATOR_HOST": "",
    }
    settings = load_settings(write(MINIMAL), environ)
    assert settings.database_url == "postgresql://two/zen"
    assert settings.pubsub_host is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ZEN_PROJCT", "ZEN_PROJECT"),
        ("ZEN_API_PORT", "ZEN_API__PORT"),
        ("ZEN_TIMERS__IDLE", "ZEN_TIMERS__IDLE_TIMEOUT_S"),
    ],
)
def test_misspelt_variable_is_refused(write: Write, name: str, meant: str) -> None:
    """A variable that was meant for us is not silently ignored."""
    (fault,) = faults_of(write(MINIMAL), {name: "1"})
    assert fault == f"environment {name}: unknown variable {name}; did you mean {meant}?"


def test_bad_variable_names_itself(write: Write) -> None:
    """A fault in a variable names the variable, not the file."""
    (fault,) = faults_of(write(MINIMAL), {"ZEN_API__PORT": "eighty"})
    assert fault.startswith('environment ZEN_API__PORT: api.port: got "eighty"')


def test_all_faults_at_once(write: Write) -> None:
    """Every fault comes in one error, each with line, key, what came and what was expected."""
    text = MINIMAL.replace("vm_max: 3", "vm_mx: 3").replace("some-project", "NOPE")
    text += "log_level: loud\ntimers:\n  heartbeat_s: -1\nextra: 1\n"
    faults = faults_of(write(text))
    joined = "\n".join(faults)
    assert 'zen.yaml:1: project: got "NOPE", expected a Google project id' in joined
    assert "zen.yaml:18: clusters.1xl4.vm_mx: unknown key vm_mx; did you mean vm_max?" in joined
    assert "zen.yaml:16: clusters.1xl4.vm_max: got nothing, expected a whole number" in joined
    assert 'zen.yaml:20: log_level: got "loud", expected one of debug' in joined
    assert "zen.yaml:22: timers.heartbeat_s: got -1, expected a number of seconds above 0" in joined
    assert "zen.yaml:23: extra: unknown key extra; " in joined
    assert len(faults) == 6


def test_error_is_one_line_per_fault(write: Write) -> None:
    """The message can be shown to an operator as it is."""
    path = write(MINIMAL + "log_level: loud\nextra: 1\n")
    with pytest.raises(ZenError) as caught:
        load_settings(path, {})
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 faults in the configuration"
    assert all(line.startswith(f"  {path}:") for line in lines[1:])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    vm_max: 3\n", "", "clusters.1xl4.vm_max: got nothing"),
        ("vm_max: 3", "vm_max: .inf", "clusters.1xl4.vm_max: got Infinity, expected a whole"),
        ("vm_max: 3", "vm_max: true", "clusters.1xl4.vm_max: got true"),
        ("vm_max: 3", "vm_max: 3\n    vm_min: 4", "vm_min: got 4, expected at most vm_max (3)"),
        ("  1xl4:", "  l4:", 'got the name "l4", expected <gpus>x<gpu type>'),
        ("  1xl4:", "  1xl5:", "clusters.1xl5: got the GPU type 'l5', expected nearest: l4"),
        ("  1xl4:", "  1xl4-spot:", "1xl4-spot.spot: got false, expected true, as the name ends"),
        ("  1xl4:", "  2xl4:", "got g2-standard-4, which has 1xl4, expected a machine with 2xl4"),
        ("machine_type: g2-standard-4", "machine_type: g2-standard-8", "nearest: g2-standard-4"),
        ("regions: [us-central1]", "regions: []", "regions: got none, expected at least one"),
        ("regions: [us-central1]", "regions: [us-central1, us-central1]", "us-central1 twice"),
        ("regions: [us-central1]", "regions: [us-east1]", "a region without known l4"),
        (
            "regions: [us-central1]",
            "regions: {us-east1: {zones: [b]}}",
            "usd_per_hour: got no price, expected prices.gpus.l4.us-east1.usd_per_hour",
        ),
        (
            "regions: [us-central1]",
            "regions: {us-central1: {zones: [us-east1-b]}}",
            "zones: got us-east1-b, expected zones of us-central1",
        ),
        ("us-central1: [a, b]", "us-central1: [a, us-central1-a]", "expected each zone once"),
        ("gpu_type: l4, gpus: 1", "gpu_type: l4", "expected both of them or neither"),
        ("2026-08-21", "soon", 'prices.as_of: got "soon", expected a date'),
        (
            "gpus:\n  l4:\n    memory_gb: 24\n    zones:\n      us-central1: [a, b]",
            "gpus: {l4: 3}",
            "gpus.l4: got 3, expected a mapping",
        ),
        ("clusters:", "timers: {lost_after_s: 50}\nclusters:", "less than lost_after_s (50.0)"),
    ],
)
def test_fault(write: Write, old: str, new: str, expected: str) -> None:
    """Each relation that does not hold is refused, in words that name the fix."""
    assert old in MINIMAL
    faults = faults_of(write(MINIMAL.replace(old, new)))
    assert any(expected in fault for fault in faults), faults


def test_key_that_stands_twice(write: Write) -> None:
    """A repeated key is refused: PyYAML would keep the last one and say nothing."""
    text = MINIMAL.replace("    vm_max: 3\n", "    vm_max: 3\n    vm_max: 300\n")
    (fault,) = faults_of(write(text))
    assert "zen.yaml:19: clusters.1xl4.vm_max: got the key a second time" in fault
    assert ":18" in fault


def test_base_name_limit(write: Write) -> None:
    """The default prefix fits the longest name of the catalogue; a longer one is refused with
    the number of characters to take away."""
    zones = {"gpus": {"l4": {"zones": {"northamerica-northeast1": ["a"]}}}}
    region = {"northamerica-northeast1": {"usd_per_hour": 1, "spot_usd_per_hour": 0.5}}
    overlay = {**zones, "clusters": {"1xl4": {"regions": region}}}
    assert load_settings(write(MINIMAL), {}, overlay).cluster("1xl4").vm_max == 3
    (fault,) = faults_of(write(MINIMAL), {}, {**overlay, "prefix": "p" * 28})
    assert "of 60 characters, expected at most 58" in fault
    assert "2 shorter" in fault


def test_overlay_merges_clusters_by_name(write: Write) -> None:
    """An overlay changes what it names, adds what is new, and takes away what it sets to None."""
    settings = load_settings(
        None,
        {},
        {
            "clusters": {
                "1xl4": {"vm_max": 2, "regions": {"us-central1": {"zones": ["a"]}}},
                "1xt4": None,
            },
            "timers": {"idle_timeout_s": 5},
        },
    )
    cluster = settings.cluster("1xl4")
    assert cluster.vm_max == 2
    assert [region.zones for region in cluster.regions] == [("us-central1-a",)]
    assert "1xt4" not in {c.name for c in settings.clusters}
    assert settings.timers.idle_timeout_s == 5
    assert settings.timers.boot_timeout_s == 900


def test_overlay_fault_names_the_overlay(write: Write) -> None:
    """A fault in an overlay does not blame a line of the file."""
    (fault,) = faults_of(write(MINIMAL), {}, {"clusters": {"1xl4": {"vm_max": "many"}}})
    assert fault.startswith('overlay: clusters.1xl4.vm_max: got "many"')


def test_static_cluster_needs_no_price(write: Write) -> None:
    """Machines that are there anyway cost nothing, need no zone list, and are kept."""
    places = {"local-host1": {"node": "unix:/run/zen/node.sock"}}
    overlay = {"clusters": {"1xl4": {"pool": "static", "vm_max": 1, "regions": places}}}
    cluster = load_settings(write(MINIMAL), {}, overlay).cluster("1xl4")
    assert cluster.regions[0].zones == ("local-host1-a",)
    assert cluster.cheapest_usd_per_hour == 0
    assert (cluster.vm_min, cluster.regions[0].vm_max) == (1, 1)


def test_a_node_belongs_to_a_static_pool_and_to_no_other(write: Write) -> None:
    """Each machine of a static pool says where it is asked; a group is asked at Google."""
    (fault,) = faults_of(
        write(MINIMAL), {}, {"clusters": {"1xl4": {"pool": "static", "regions": ["local-host1"]}}}
    )
    assert "clusters.1xl4.regions.local-host1.node: got nothing" in fault
    odd = {"us-central1": {"node": "unix:/run/zen/node.sock"}}
    (fault,) = faults_of(write(MINIMAL), {}, {"clusters": {"1xl4": {"regions": odd}}})
    assert "expected pool: static" in fault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1, 2", "one valid YAML document"),
        ("a: 1\n---\nb: 2\n", "one valid YAML document"),
        ("- a\n- b\n", "a mapping of configuration keys"),
        ("a: &x [*x]\n", "levels"),
        ("project: !!python/object/apply:os.system [echo]\n", "project"),
        ("prices: {as_of: 2026-13-45}\n", "'2026-13-45' (month must be in 1..12)"),
        ("a: \x00\n", "one valid YAML document"),
    ],
)
def test_unreadable_file(write: Write, text: str, expected: str) -> None:
    """A file that is no configuration at all is one clear fault, never a traceback."""
    assert any(expected in fault for fault in faults_of(write(text)))


def test_missing_file(tmp_path: Path) -> None:
    """A path that is not there is named."""
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(path, {})


def test_empty_file_lists_what_is_required(write: Write) -> None:
    """Nothing configured: the faults are the list of what must be."""
    faults = faults_of(write(""))
    assert any("project: got nothing" in fault for fault in faults)
    assert any("prices.as_of: got nothing" in fault for fault in faults)


def test_password_is_never_shown(write: Write) -> None:
    """Neither a fault nor a printed Settings gives the database password away."""
    secret = "hunter2"
    faults = faults_of(write(MINIMAL), {"DATABASE_URL": f"mysql://zen:{secret}@db/zen"})
    assert not any(secret in fault for fault in faults)
    settings: Settings = load_settings(
        write(MINIMAL), {"DATABASE_URL": f"postgresql://zen:{secret}@db/zen"}
    )
    assert secret not in repr(settings)


def test_default_path_is_packaged() -> None:
    """The default file lies beside the code, so that an installed package finds it."""
    assert DEFAULT_PATH.is_file()


def test_retention(write: Write) -> None:
    """Days come from the file or the environment; the rest keeps its default; 0 is refused."""
    path = write(MINIMAL + "retention: {outbox_days: 3, events_days: 0.5}\n")
    settings = load_settings(path, {"ZEN_RETENTION__VMS_DAYS": "2"})
    assert settings.retention == RetentionRules(outbox_days=3, events_days=0.5, vms_days=2)
    faults = faults_of(write(MINIMAL + "retention: {alerts_days: 0, outbox: 1}\n"))
    assert any("alerts_days" in fault and "above 0" in fault for fault in faults)
    assert any("outbox; did you mean outbox_days?" in fault for fault in faults)


def test_budgets_of_tenants(write: Write) -> None:
    """What is not said has no limit; a human is told at 80 %; nobody is named by default."""
    assert load_settings(write(MINIMAL), {}).tenants == {}
    given = "tenants: {acme: {usd_per_day: 100, usd_per_month: 2000, warn_at: 0.5}, b: {}}\n"
    settings = load_settings(write(MINIMAL + given), {})
    assert settings.tenants == {"acme": TenantBudget(100, 2000, 0.5), "b": TenantBudget()}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("{a b: {}}", 'tenants.a b: got the name "a b", expected a tenant'),
        ("{a: {usd_per_day: -1}}", "tenants.a.usd_per_day: got -1, expected a number of USD"),
        ("{a: {warn_at: 80}}", "tenants.a.warn_at: got 80, expected a part above 0, at most 1"),
        (
            "{a: {usd_per_week: 1}}",
            "tenants.a.usd_per_week: unknown key usd_per_week; did you mean usd_per_",
        ),
    ],
)
def test_bad_budgets(write: Write, given: str, fault: str) -> None:
    """Each fault by its key, with what was expected."""
    (found,) = faults_of(write(f"{MINIMAL}tenants: {given}\n"))
    assert fault in found


def test_spot_beside_standard(write: Write) -> None:
    """Two clusters of the same GPUs, one of them spot: same type and machine, its own price."""
    body = MINIMAL.partition("  1xl4:\n")[2]
    settings = load_settings(write(f"{MINIMAL}  1xl4-spot:\n{body}    spot: true\n"), {})
    standard, spot = settings.clusters
    assert (spot.name, spot.gpu_type, spot.gpus) == ("1xl4-spot", "l4", 1)
    assert spot.machine_type == standard.machine_type
    assert spot.cheapest_usd_per_hour < standard.cheapest_usd_per_hour


def test_shared_vms_and_health(write: Write) -> None:
    """Exclusive by default; a v1 worker cannot share; thresholds are settings."""
    assert not load_settings(write(MINIMAL), {}).cluster("1xl4").share
    shared = MINIMAL + "    share: true\nhealth: {gpu_hot_c: 70, failures: 0}\n"
    settings = load_settings(write(shared), {})
    assert settings.cluster("1xl4").share
    assert (settings.rules.health.gpu_hot_c, settings.rules.health.failures) == (70, 0)
    (fault,) = faults_of(
        write(MINIMAL + "    share: true\n    worker: v1\n    trusted_tenants_only: true\n")
    )
    assert "share: got true, expected false: a v1 worker runs one job" in fault


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("spot: true", "clusters.1xl4.spot: got true with flex_start_wait_s, expected false"),
        ("worker: v1", 'clusters.1xl4.worker: got "v1" with flex_start_wait_s, expected v2'),
        ("share: true", "clusters.1xl4.share: got true with flex_start_wait_s, expected false"),
        ("pool: static", 'clusters.1xl4.pool: got "static" with flex_start_wait_s, expected mig'),
    ],
)
def test_vms_that_come_together(write: Write, more: str, fault: str) -> None:
    """Off by default; what makes no sense with it is told."""
    assert load_settings(write(MINIMAL), {}).cluster("1xl4").flex_start_wait_s is None
    flex = MINIMAL.replace("vm_max: 3", "vm_max: 3\n    flex_start_wait_s: 7200")
    assert load_settings(write(flex), {}).cluster("1xl4").flex_start_wait_s == 7200
    found = faults_of(write(flex.replace("7200", f"7200\n    {more}")))
    assert any(fault in told for told in found), found
    (found_wait,) = faults_of(write(flex.replace("7200", "0")))
    assert "clusters.1xl4.flex_start_wait_s: got 0, expected a number of seconds" in found_wait


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("vm_min: 1", "clusters.1xl4.vm_min: got 1, expected 0: a v1 worker without a job"),
        ("share: true", "clusters.1xl4.share: got true, expected false: a v1 worker runs one job"),
    ],
)
def test_what_v1_workers_cannot_do(write: Write, more: str, fault: str) -> None:
    """They run one job and delete their VM: nothing is kept warm and nothing shared."""
    v1 = MINIMAL.replace("vm_max: 3", "vm_max: 3\n    worker: v1\n    trusted_tenants_only: true")
    assert load_settings(write(v1), {}).cluster("1xl4").worker == "v1"
    (found,) = faults_of(write(v1.replace("worker: v1", f"worker: v1\n    {more}")))
    assert fault in found


def test_origins_and_the_port_of_metrics(write: Write) -> None:
    """Both are off unless they are set."""
    api = load_settings(write(MINIMAL), {}).api
    assert (api.cors_origins, api.metrics_port) == ((), None)
    text = f"{MINIMAL}\napi: {{cors_origins: ['*'], metrics_port: 9091}}\n"
    api = load_settings(write(text), {}).api
    assert (api.cors_origins, api.metrics_port) == (("*",), 9091)
    (fault,) = faults_of(write(f"{MINIMAL}\napi: {{cors_origins: [example.org]}}\n"))
    assert "a list of origins" in fault


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "zen.example.org"])
def test_listening_beyond_loopback_needs_tls_or_a_proxy(write: Write, host: str) -> None:
    """Refused with the fix, whether the file or the environment says it."""
    (fault,) = faults_of(write(f"{MINIMAL}\napi: {{host: '{host}'}}\n"))
    assert "api.host" in fault
    assert "api.tls: {cert, key}; or api.behind_proxy: true" in fault
    with pytest.raises(ConfigError, match=r"api\.behind_proxy"):
        load_settings(write(MINIMAL), {"ZEN_API__HOST": host})
    tls = {"ZEN_API__HOST": host, "ZEN_API__TLS": "/a.pem,/b.pem"}
    assert load_settings(write(MINIMAL), tls).api.tls == TlsFiles("/a.pem", "/b.pem")
    proxied = {"ZEN_API__HOST": host, "ZEN_API__BEHIND_PROXY": "true"}
    assert load_settings(write(MINIMAL), proxied).api.behind_proxy
    for own in ("127.0.0.1", "localhost", "::1"):
        assert load_settings(write(MINIMAL), {"ZEN_API__HOST": own}).api.host == own


@pytest.mark.parametrize("tls", ["{cert: /a.pem}", "{cert: /a.pem, key: ''}", "yes", "[a, b]"])
def test_tls_needs_both_files(write: Write, tls: str) -> None:
    """A certificate without its key serves nobody."""
    (fault,) = faults_of(write(f"{MINIMAL}\napi: {{tls: {tls}}}\n"))
    assert "api.tls" in fault
