"""The composition root: builds the parts of one replica, runs them, stops them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import structlog

from config.settings import Settings
from core.clock import SystemClock
from core.errors import BadInput, Fault, StoreDown
from core.ids import RandomIds
from core.job import JobKey
from core.messages import SubscriptionFault
from core.stopping import stop_event
from db.access import PostgresAccess
from db.audit_log import PostgresAuditLog
from db.code import PostgresCode
from db.config_versions import PostgresConfigVersions
from db.notifications import Listener
from db.reads import PostgresReads
from db.secrets import PostgresSecrets
from db.sessions import PostgresSessions
from db.store import PostgresStore
from db.tenant_connections import TenantPool
from messaging.control_subscriptions import PubSubControlSubscriptions
from messaging.mending import mend_subscriptions
from messaging.proofs.control import SchedulerSigner
from messaging.proofs.enrolment import EnrolmentTokens, enrolment_secret
from messaging.proofs.key_file import FIELD, read_scheduler_keys
from messaging.pubsub import PubSubBus
from migs.google_compute import open_google
from migs.own_machines import open_own_machines
from scheduler.api.caller import ApiCaller, TenantReads
from scheduler.api.etas import KnownForecasts
from scheduler.api.http.app import create_app, create_metrics_app
from scheduler.api.http.server import bind, web_server
from scheduler.api.job_meta import JobMetas
from scheduler.api.manifests import ManifestCache
from scheduler.api.services import OK, ApiAccess, Embedded, Services
from scheduler.operations.audit_anchors import AuditAnchors
from scheduler.operations.first_config import Start
from scheduler.operations.live_config import ConfigParts
from scheduler.operations.metrics import Metrics
from scheduler.queue.blocked_clusters import KnownRegionBlocks
from scheduler.replica import Adapters, Replica, forever
from scheduler.secrets.job_tokens import JobTokens
from scheduler.secrets.key_file import read_keys
from scheduler.secrets.resolver import SecretResolver
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.secrets.vault import SecretVault
from scheduler.submission.group_commit import GroupCommit
from scheduler.uploads.code_trees import CodeTrees
from stores.base import open_store
from stores.google_tokens import GoogleTokenMint
from stores.secret_manager import SecretManager

log = structlog.get_logger("app")
RESTART_S = 1.0
CLOUD_MAKERS = {"mig": open_google, "static": open_own_machines}
"""A cluster's `pool` → who makes its cloud; the terms of each are in core/clouds.py."""


class Production:
    """The production adapters, opened and closed together with their replica."""

    def __init__(self, start: Start) -> None:
        settings = start.candidate.settings
        clock, ids = SystemClock(), RandomIds()
        holder = f"{socket.gethostname()}-{os.getpid()}-{ids.token()[:6]}"
        needed = settings.database_roles
        self._store = PostgresStore(settings.database_url, name=holder, role_required=needed)
        self._callers = TenantPool(
            settings.api_database_url or settings.database_url,
            holder,
            self._store.server,
            role_required=needed,
        )
        self._files = open_store(settings.store_url)
        self._code = PostgresCode(self._store)
        self._bus = PubSubBus(settings.project, emulator_host=settings.pubsub_host)
        self._clouds = {pool: made(settings, clock) for pool, made in CLOUD_MAKERS.items()}
        audit_log = PostgresAuditLog(self._store)
        keys = _worker_keys(settings)
        secrets = [enrolment_secret(key) for key in keys.keys]
        # No cloud vouches for machines of our own: they were given a secret.
        self._clouds["static"] = replace(
            self._clouds["static"], identities=EnrolmentTokens(secrets, clock)
        )
        url = settings.audit.anchor_url
        anchors = AuditAnchors(open_store(url)) if url is not None else None
        adapters = Adapters(
            store=self._store,
            bus=self._bus,
            clouds=self._clouds,
            write=GroupCommit(self._store).submit,
            wakeups=Listener(settings.database_url).wakeups,
            clock=clock,
            ids=ids,
            subscriptions=PubSubControlSubscriptions(
                self._bus, settings.names, settings.workers.service_account
            ),
            keys=keys,
            mend=self._mend,
            config=ConfigParts(
                start.reader,
                start.candidate,
                start.file,
                PostgresConfigVersions(self._store),
                host=socket.gethostname(),
            ),
            secrets=self._secrets(settings, ids).resolve,
            secret_names=self.secrets.known_names,
            has_code=self._has_code,
            tokens=self._tokens(settings).mint,
            audit_log=audit_log,
            anchors=anchors,
        )
        self.replica = Replica(settings, adapters, Metrics(), holder)
        self.access = self._access(audit_log, anchors)
        self.replica.authenticator = self.access.authenticator
        blocks = KnownRegionBlocks(PostgresReads(self._store).blocks, self.replica.clock)
        self.replica.submissions.blocks = blocks

    async def _has_code(self, tenant_id: str, code: str) -> bool:
        return await self._code.use_tree(tenant_id, code, self.replica.clock.now()) is not None

    async def _mend(self) -> Sequence[SubscriptionFault]:
        settings = self.replica.settings
        return await mend_subscriptions(
            self._bus, settings.names, settings.clusters, settings.submit_topics
        )

    def _secrets(self, settings: Settings, ids: RandomIds) -> SecretResolver:
        key_file = settings.secrets.key_file
        vault = SecretVault(read_keys(Path(key_file))) if key_file is not None else None
        self.secrets = TenantSecrets(PostgresSecrets(self._store), vault, ids)
        manager = SecretManager(settings.secrets.manager_url or _pretend_cloud(settings))
        self._close_secrets = manager.close
        return SecretResolver(
            self.secrets, manager, lambda name: self.replica.settings.secret_projects.get(name, ())
        )

    def _tokens(self, settings: Settings) -> JobTokens:
        source = GoogleTokenMint(_pretend_cloud(settings))
        self._close_tokens = source.close
        return JobTokens(source, settings.store_url, lambda: self.replica.settings.google_accounts)

    def _access(self, audit_log: PostgresAuditLog, anchors: AuditAnchors | None) -> ApiAccess:
        keys, sessions = PostgresAccess(self._store), PostgresSessions(self._store)
        replica = self.replica
        made = ApiAccess.over(
            keys, sessions, audit_log, lambda: replica.settings.access, replica.clock, replica.ids
        )
        return replace(made, anchors=anchors)

    async def open(self) -> None:
        """Does not wait for the database: readiness tells."""
        await self._store.open()
        await self._callers.store.open()
        self.replica.start()
        self._uses = [
            forever("key uses", self.access.authenticator.remember),
            forever("session uses", self.access.sessions.remember),
        ]

    async def close(self) -> None:
        """Hand over first, then let go."""
        for uses in self._uses:
            uses.cancel()
        await self.replica.stop()
        await self._bus.close()
        self._close_secrets()
        self._close_tokens()
        for cloud in self._clouds.values():
            await cloud.close()
        await self._callers.store.close()
        await self._store.close()

    def services(self, embedded: Embedded | None) -> Services:
        """What the API stands on."""
        replica, settings = self.replica, self.replica.settings
        reads = PostgresReads(self._store)
        files = self._files
        return Services(
            store=self._store,
            reads=reads,
            bound_reads=self._bound_reads,
            access=self.access,
            secrets=self.secrets,
            submissions=replica.submissions,
            settings=replica.live,
            clock=replica.clock,
            ids=replica.ids,
            metrics=replica.metrics,
            readiness=self._readiness,
            logs=files,
            shelf=ManifestCache(files),
            metas=JobMetas(files, replica.live),
            code=CodeTrees(
                self._code, files, replica.clock, replica.ids, lambda: replica.settings.code
            ),
            version=metadata_version(),
            embedded=embedded,
            forecasts=KnownForecasts(self._store.forecasts, replica.clock),
            config=replica.config,
            api=settings.api,
        )

    def _bound_reads(self, caller: ApiCaller) -> TenantReads:
        """What a caller reads of jobs: its tenants are bound twice, here and in each query."""
        return TenantReads(PostgresReads(self._store, self._callers.bound(caller.tenants)), caller)

    async def _readiness(self) -> Mapping[str, str]:
        try:
            await self._store.content_hash(
                JobKey("", "", "")
            )  # the cheapest question that needs the schema
            await self._callers.check()
        except StoreDown as error:
            return {"database": str(error)}
        return {"database": OK}


def _pretend_cloud(settings: Settings) -> str | None:
    """Where Google's other services are too, if Compute's are pretended; None: Google's own."""
    compute = settings.cloud["compute_url"] or ""
    return compute if compute.startswith("http:") else None


def _worker_keys(settings: Settings) -> SchedulerSigner:
    path = settings.workers.key_file
    if path is None:
        expected = "the file of the scheduler's keys; `zen workers keys create FILE` makes it"
        raise BadInput([Fault(FIELD, "nothing", expected)])
    return SchedulerSigner(read_scheduler_keys(Path(path)))


async def serve(
    start: Start,
    *,
    embedded: Embedded | None = None,
    parent_fd: int | None = None,
    on_ready: Callable[[str], None],
) -> None:
    """Run one replica until SIGTERM, SIGINT, or the death of the parent."""
    settings = start.candidate.settings
    stop = stop_event(parent_fd)
    api = settings.api
    listening = bind(api.host, api.port)
    scraped = bind(api.host, api.metrics_port) if api.metrics_port is not None else None
    production = Production(start)
    services = production.services(embedded)
    servers = [(web_server(create_app(services), api), listening)]
    if scraped is not None:
        servers.append((web_server(create_metrics_app(services), api), scraped))
    await production.open()
    serving = [asyncio.create_task(server.serve(sockets=[at])) for server, at in servers]
    host, port = listening.getsockname()[:2]
    on_ready(f"{'https' if api.tls else 'http'}://{host}:{port}")
    await stop.wait()
    log.info("stopping")
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*serving, production.close(), return_exceptions=True)


def metadata_version() -> str:
    """The version people see; a checkout that is not installed says so."""
    try:
        return metadata.version("pipeline-zen-jobs-scheduler")
    except metadata.PackageNotFoundError:
        return "0.1.0+checkout"


def announce(api: str) -> None:
    """The one line on stdout that a supervisor waits for."""
    print(json.dumps({"event": "ready", "api": api}), flush=True)
