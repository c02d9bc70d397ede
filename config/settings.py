"""The configuration as everybody else sees it: frozen, checked, complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.access_rules import AccessRules
from core.cluster import ClusterSpec
from core.code_store import CodeRules
from core.containers import ContainerRules
from core.cost import TenantBudget
from core.errors import NotFound
from core.health import HealthRules
from core.job import Budgets, Rules
from core.names import Names
from core.queueing import QueuePolicy
from core.retention import RetentionRules
from core.sandbox import SandboxRules
from core.submission import unknown_cluster
from core.submit_topics import TopicBinding
from core.supply import CapacityPolicy
from core.timers import Timers


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, and its private key."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where the REST API listens and how much it accepts."""

    host: str = "127.0.0.1"
    """The address the API listens on. One that is not loopback needs `api.tls`, or
    `api.behind_proxy` where a proxy ends TLS."""
    port: int = 8080
    """Its port; 0 takes a free one."""
    max_body_bytes: int = 1024 * 1024
    """A larger request is refused."""
    connections_max: int = 4096
    """Connections at once. With more, the one that has waited longest without a request is closed;
    if all have one, the newest is refused."""
    requests_per_s: float | None = 2000
    """Requests per second of one caller, in the long run; more are answered 429 with Retry-After.
    Null: any number."""
    requests_burst: int = 10_000
    """Requests of one caller at once, after a silence."""
    tls: TlsFiles | None = None
    """PEM files of a certificate (with its chain) and its private key: the API is served over
    HTTPS. In the environment: the two paths with a comma between them."""
    behind_proxy: bool = False
    """A proxy in front of the API ends TLS and appends its client's address to X-Forwarded-For,
    which is believed then."""
    proxy_hops: int = 1
    """Where `behind_proxy` is true: how many addresses the proxies append to X-Forwarded-For; the
    first of them is the caller's. 2 behind Google's external load balancers, which append their own
    address too."""
    cors_origins: tuple[str, ...] = ()
    """Web pages of these origins may call the API from a browser; `*`: of any. Nobody is asked who
    they are, so name origins that you trust."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which clients reach the API, besides `api.host`, loopback and the address that a
    connection came to. A request for another host is refused (421): its sender may be a web page
    whose DNS name was rebound to this address."""
    metrics_port: int | None = None
    """Prometheus metrics on a port of their own, beside `/metrics` of the API."""

    @property
    def forwarded_hops(self) -> int:
        """Addresses of X-Forwarded-For that are believed."""
        return self.proxy_hops if self.behind_proxy else 0


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """How tenants' secrets are kept."""

    key_file: str | None = None
    """The file of the keys that secrets are sealed with in the database, the same on every replica
    and readable for its owner alone (`zen secrets key FILE`). Null: no secrets are stored. `zen up`
    makes one."""
    manager_url: str | None = None
    """Secret Manager, for references `sm://…`; null: Google's own, or the one of `compute_url`
    where that is a pretend cloud (http://)."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How the scheduler and its workers know each other."""

    key_file: str | None = None
    """The file of the scheduler's private keys, the same on every replica and readable for its
    owner alone (`zen workers keys create`). Workers find the public keys in their instance
    template. `zen up` makes one."""
    service_account: str | None = None
    """The service account of the VMs. The scheduler lets it read each control subscription that it
    makes, so that VMs need no right to read subscriptions of the project. Null: that right is
    theirs already."""
    store_tokens: bool = True
    """With `store_url: gs://…` a VM stores the log and the outputs of an attempt with a token that
    opens these alone. It is made of the scheduler's account, which needs `roles/storage.objectUser`
    on the bucket. False: VMs use their own account."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The audit log."""

    anchor_url: str | None = None
    """Where the head of the chain is written, e.g. gs://a-bucket-with-a-retention-policy: what was
    written before the last anchor cannot be changed unnoticed, not even by who owns the database
    (`zen audit verify --anchors`). null: nowhere."""
    anchor_every_s: float = 300.0
    """How often, if the head has changed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the service needs to know before it starts."""

    project: str
    names: Names
    clusters: tuple[ClusterSpec, ...]
    timers: Timers
    budgets: Budgets
    retention: RetentionRules
    database_url: str = field(repr=False)
    """Not in the repr: it may hold a password."""
    pubsub_host: str | None
    """host:port of an emulator or of the local bus; None: Google's own service."""
    cloud: Mapping[str, Any]
    """The keys that only the adapters of clouds read (config/schema.py, `cloud`), by path."""
    store_url: str
    v1_results_url: str | None
    """Where v1 workflows store what they made; {region} and {multi_region} are filled in."""
    """Logs and artifacts: file:///directory or gs://bucket/prefix."""
    api: ApiSettings
    queue_limit: int
    """QUEUED jobs that one scheduling cycle looks at."""
    log_level: str
    prices_as_of: str
    """The day the prices were read, for people who compare them with a bill."""
    api_database_url: str | None = field(default=None, repr=False)
    """The login that reads for callers; None: the same one."""
    database_roles: bool = True
    """Sessions that cannot become our database roles are not used."""
    tenants: Mapping[str, TenantBudget] = field(default_factory=dict)
    """What tenants may spend; one that is not named has no limit."""
    capacity: CapacityPolicy = field(default_factory=CapacityPolicy)
    queue: QueuePolicy = field(default_factory=QueuePolicy)
    create_tenants: bool = False
    """A submission may bring a new tenant; else only tenants that were set up may submit."""
    single_tenant: bool = False
    """Only the default tenant may submit."""
    confirm_above_usd_per_hour: float | None = None
    """A dearer submission must be confirmed; None: none is."""
    submit_topics: tuple[TopicBinding, ...] = ()
    """Topics whose messages are one tenant's; on others a message needs a key."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    health: HealthRules = field(default_factory=HealthRules)
    containers: ContainerRules = field(default_factory=ContainerRules)
    sandbox: SandboxRules = field(default_factory=SandboxRules)
    code: CodeRules = field(default_factory=CodeRules)
    access: AccessRules = field(default_factory=AccessRules)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    secret_projects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tenant → the projects whose secrets its jobs may use; one that is not named may use none."""
    google_accounts: Mapping[str, str] = field(default_factory=dict)
    """Tenant → the service account that its jobs may be; one that is not named has none."""
    version: int = 0
    """Of the configuration in the database; 0: as the process was started."""
    _named: dict[str, ClusterSpec] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @property
    def by_name(self) -> Mapping[str, ClusterSpec]:
        """The clusters by name."""
        if not self._named:
            self._named.update((cluster.name, cluster) for cluster in self.clusters)
        return self._named

    def cluster(self, name: str) -> ClusterSpec:
        """The cluster by name, or NotFound with the nearest names."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        known = (cluster.name for cluster in self.clusters)
        raise NotFound(unknown_cluster(name, known).words)

    @property
    def rules(self) -> Rules:
        """What the job's state machine needs of all this."""
        return Rules(
            timers=self.timers,
            budgets=self.budgets,
            queue=self.queue,
            health=self.health,
            v1_clusters=frozenset(spec.name for spec in self.clusters if spec.worker == "v1"),
        )
