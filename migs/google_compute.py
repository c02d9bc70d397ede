"""The Compute ports over google-cloud-compute."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import structlog

from config.settings import Settings
from core.actions import Create, Delete, Queue
from core.cluster import ClusterSpec
from core.errors import CloudRefused, CloudUnsure, MigMissing, ZenError
from core.mig import CapacityHint, GroupError, ManagedInstance, MigSnapshot, OperationFailed, Queued
from core.ports import Clock, Cloud
from migs.advice import Adviser
from migs.calling import ATTEMPTS, CALL_S, About, Call, Caller, call_of
from migs.group_settings import check_group
from migs.identity_tokens import open_identity_tokens
from migs.library import ComputeClients, ComputeLibrary
from migs.operations import Operations
from migs.removed_members import ErrorHistory
from migs.responses import read_group_error, read_member, read_queued, zone_of

log = structlog.get_logger("migs")
NAMES_PER_CALL = 1000
PAGE = 500
PAGES_MAX = 40
"""20,000 members, ten times what Google lets a group have."""

Request = dict[str, object]


class Listing(NamedTuple):
    """A list of Google's, and how an entry of it is read; None is left out."""

    client: str
    method: str
    items: str
    read: Callable[[Any], object]
    pages_max: int


_MEMBERS = Listing("groups", "list_managed_instances", "managed_instances", read_member, PAGES_MAX)
# Google says nothing about the order of its errors, and only recent ones are of use.
_ERRORS = Listing("groups", "list_errors", "items", read_group_error, 4)
_QUEUED = Listing("requests", "list", "items", read_queued, 4)


def open_google(settings: Settings, clock: Clock) -> Cloud:
    """Google Compute Engine, in the project of the settings."""
    compute = GoogleCompute(
        settings.project,
        endpoint=settings.cloud["compute_url"],
        clock=clock,
        calls_per_minute=settings.cloud["calls_per_minute"],
    )
    identities = open_identity_tokens(settings, clock)
    return Cloud(lambda _: compute, compute, compute, compute.warm_up, compute.close, identities)


class GoogleCompute:
    """core.ports.FlexStart and CapacityAdvice for one project. Belongs to one event loop."""

    def __init__(
        self,
        project: str,
        *,
        endpoint: str | None,
        clock: Clock,
        calls_per_minute: int,
        call_s: float = CALL_S,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._project = project
        self._clock = clock
        self._library = ComputeLibrary(endpoint)
        self._caller = Caller(
            self._library,
            clock,
            calls_per_minute=calls_per_minute,
            call_s=call_s,
            attempts=attempts,
        )
        self._history = ErrorHistory()
        self._adviser = Adviser(project, self._caller, clock)
        self._operations = Operations(project, self._caller)

    def warm_up(self) -> None:
        """Start loading the library in the background; calls wait for it."""
        self._library.start()

    async def close(self) -> None:
        """No more calls. Those under way end by their own time-out."""
        self._library.close()
        self._caller.close()

    # --- the port -----------------------------------------------------------------------

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        """The group and all its members."""
        # The time before the question: what happens while it travels is not in the answer.
        asked_at = self._clock.now()
        about = About(mig, region)
        group = await self._get(about)
        members = await self._pages(_MEMBERS, about)
        faults, deadly = check_group(group)
        return MigSnapshot(
            mig=mig,
            cluster=cluster,
            region=region,
            target_size=group.target_size,
            stable=group.status.is_stable,
            members=tuple(members),
            observed_at=asked_at,
            faults=faults,
            deadly=deadly,
            errors=await self._news_of_the_gone(about, members, asked_at),
        )

    async def create(self, mig: str, action: Create) -> None:
        """Adds members by name."""
        requests: list[Request] = [
            {
                **self._group(mig, action.region),
                "request_id": request_id,
                "region_instance_group_managers_create_instances_request_resource": {
                    "instances": [{"name": name} for name in names]
                },
            }
            for request_id, names in _portions(action)
        ]
        about = About(mig, action.region, write=True)
        await self._write("create_instances_unary", requests, about)

    async def delete(self, mig: str, action: Delete) -> None:
        """Removes exactly these members. Their zones are asked for first: a member may have
        moved since it was last seen, and a URL with the wrong zone is skipped in silence."""
        look = About(mig, action.region, urgent=True)
        listed = {m.name: m for m in await self._pages(_MEMBERS, look)}
        requests: list[Request] = []
        for request_id, names in _portions(action):
            found = [listed[name] for name in names if name in listed]
            staying = [member for member in found if member.leaving is None]
            if staying:
                body = {
                    "instances": await self._urls(look, staying),
                    "skip_instances_on_validation_error": True,
                }
                key = "region_instance_group_managers_delete_instances_request_resource"
                group = self._group(mig, action.region)
                requests.append({**group, "request_id": request_id, key: body})
        about = About(mig, action.region, write=True, urgent=True)
        await self._write("delete_instances_unary", requests, about)

    async def queue(self, mig: str, action: Queue) -> None:
        """A resize request, with our names for its VMs."""
        resource = {
            "name": action.name,
            "instances": [{"name": name} for name in action.names],
            "requested_run_duration": {"seconds": int(action.run_s)},
        }
        request = {
            **self._group(mig, action.region),
            "request_id": action.request_id,
            "instance_group_manager_resize_request_resource": resource,
        }
        about = About(mig, action.region, write=True)
        accepted = await self._caller.repeated(call_of("requests", "insert_unary", request), about)
        await self._operations.finish(accepted, about)

    async def queued(self, mig: str, region: str) -> tuple[Queued, ...]:
        """The group's resize requests."""
        return tuple(await self._pages(_QUEUED, About(mig, region)))

    async def unqueue(self, mig: str, region: str, name: str, request_id: str) -> None:
        """Cancels a resize request; looks first, because Google refuses what is over."""
        asked = {queued.name: queued for queued in await self.queued(mig, region)}
        if name not in asked or asked[name].state.final:
            return
        request = {**self._group(mig, region), "resize_request": name, "request_id": request_id}
        about = About(mig, region, write=True, urgent=True)
        try:
            await self._caller.repeated(call_of("requests", "cancel_unary", request), about)
        except (CloudRefused, MigMissing) as error:
            log.info("not cancelled: it was over by then", request=name, why=str(error))

    async def advise(self, spec: ClusterSpec, region: str) -> tuple[CapacityHint, ...]:
        """What Google expects of a spot VM there."""
        return await self._adviser.advise(spec, region)

    # --- calls --------------------------------------------------------------------------

    def _group(self, mig: str, region: str) -> Request:
        return {"project": self._project, "region": region, "instance_group_manager": mig}

    async def _get(self, about: About) -> Any:
        request = self._group(about.mig, about.region)
        return await self._caller.repeated(call_of("groups", "get", request), about)

    async def _pages(self, listing: Listing, about: About) -> list[Any]:
        """Everything that is listed; each page has its own place in the budget."""
        request = {**self._group(about.mig, about.region), "max_results": PAGE}
        found: list[Any] = []
        token = ""
        for _ in range(listing.pages_max):
            call = _page_call(listing, {**request, "page_token": token})
            page, token = await self._caller.repeated(call, about)
            found += page
            if not token:
                return found
        most = listing.pages_max * PAGE
        raise CloudRefused(f"{about.mig} in {about.region} lists more than {most} entries")

    async def _news_of_the_gone(
        self, about: About, members: list[ManagedInstance], now: datetime
    ) -> tuple[GroupError, ...]:
        """A history that cannot be had is no reason to lose the observation itself."""
        group = (about.region, about.mig)
        if not self._history.is_due(group, members, now):
            return ()
        self._history.asked(group, now)
        try:
            errors = await self._pages(_ERRORS, about)
        except ZenError as error:
            log.info("the group's errors could not be read", mig=about.mig, why=str(error))
            return ()
        return self._history.news(group, members, errors, now)

    async def _urls(self, about: About, members: list[ManagedInstance]) -> list[str]:
        """A member that Google has not given a zone yet is named in the group's first one: only
        the zone of a VM that exists binds, and a wrong guess is skipped, then seen again."""
        guess = ""
        if any(not member.zone for member in members):
            zones = (await self._get(about)).distribution_policy.zones
            guess = next((zone_of(z.zone) for z in zones), f"{about.region}-a")
        return [f"zones/{member.zone or guess}/instances/{member.name}" for member in members]

    async def _write(self, method: str, requests: list[Request], about: About) -> None:
        """The calls of one action, in order, and what became of each."""
        for index, request in enumerate(requests):
            try:
                accepted = await self._caller.repeated(call_of("groups", method, request), about)
                await self._operations.finish(accepted, about)
            except OperationFailed:
                raise
            except ZenError as error:
                if index and not isinstance(error, CloudUnsure):
                    raise CloudUnsure(f"part of it was accepted, then: {error}") from error
                raise


def _page_call(listing: Listing, request: Request) -> Call[tuple[list[Any], str]]:
    """One page, read in the call's thread, and the token of the next one."""

    def call(clients: ComputeClients, timeout_s: float) -> tuple[list[Any], str]:
        pager = call_of(listing.client, listing.method, request)(clients, timeout_s)
        page = next(iter(pager.pages))
        raw = type(page).pb(page)  # its wrapped messages would be six times slower to read
        read = (listing.read(item) for item in getattr(raw, listing.items))
        return [item for item in read if item is not None], raw.next_page_token

    return call


def _portions(action: Create | Delete) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(request id, names) for each call. Ids of later portions follow from the first, and the
    portions from the names alone, so that a repeat of the action repeats the same calls."""
    for index in itertools.count():
        names = action.names[index * NAMES_PER_CALL : (index + 1) * NAMES_PER_CALL]
        if not names:
            return
        own = uuid.uuid5(uuid.UUID(action.request_id), str(index))
        yield (str(own) if index else action.request_id), names
