"""Secrets and tokens of starts, and of renewals of tokens, that are about to be sent.

A start stands in the outbox with references. Its values and tokens are asked for beside the relay,
so that no other message waits for them, are kept in memory until the start is sent, and stand in
the sealed message alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from core.errors import SecretRefused, SecretsAway, StoreDown, ZenError
from core.job_tokens import MintTokens
from core.messages import OutboxRow, OutMessage
from core.ports import Clock
from messaging.codec import SECRETS, start_lease, wanted_secrets, with_secrets
from messaging.token_parts import TOKENS, wanted_tokens, with_tokens
from scheduler.secrets.job_tokens import no_tokens

log = structlog.get_logger("secrets")
WAIT_S = 300.0
"""For so long a start waits for secrets that cannot be had at the moment. For tokens it waits as
long as it takes: every start needs them, and an outage must not fail every job."""
AGAIN_FIRST_S = 1.0
AGAIN_MAX_S = 15.0
AT_ONCE = 16
"""Starts that are asked for at once, and as many renewals beside them."""
HELD_MAX = 20_000
"""Rows that are kept in memory while they wait."""
Resolve = Callable[[str, Mapping[str, str]], Awaitable[Mapping[str, str]]]
_RENEWAL = "tokens"


async def no_secrets(tenant_id: str, references: Mapping[str, str]) -> Mapping[str, str]:
    """Where nobody resolves references."""
    names = ", ".join(references)
    raise SecretRefused(f"secrets: this deployment gives tenant {tenant_id} none ({names})")


class TokensAway(SecretsAway):
    """A token cannot be minted at the moment: ask again, however long it takes."""


@dataclass(frozen=True, slots=True)
class SealedParts:
    """Puts into a message what stands in no table: values of secrets, and tokens."""

    resolve: Resolve = no_secrets
    mint: MintTokens = no_tokens

    async def filled(self, message: OutMessage) -> OutMessage:
        """For sealing alone. SecretRefused, TokensAway, SecretsAway, StoreDown."""
        if SECRETS in message.attributes:
            tenant_id, references = wanted_secrets(message)
            message = with_secrets(message, await self.resolve(tenant_id, references))
        if TOKENS in message.attributes:
            try:
                tokens = await self.mint(wanted_tokens(message))
            except (SecretsAway, StoreDown) as error:
                raise TokensAway(str(error)) from error
            message = with_tokens(message, tokens)
        return message


@dataclass(slots=True)
class _Wanted:
    task: asyncio.Task[None]
    message: OutMessage | None = field(default=None, repr=False)
    """With the values; None: not yet."""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SortedStarts:
    """Rows of the outbox, as far as secrets are concerned."""

    ready: list[OutboxRow]
    held: list[OutboxRow]
    """Starts whose values are asked for, and what follows them for the same worker."""
    refused: list[tuple[OutboxRow, str]]
    """Starts that cannot have their secrets, and why."""


class StartSecrets:
    """`fill` is asked for each start; `poke` tells the relay that one is ready."""

    def __init__(self, fill: SealedParts, clock: Clock, poke: Callable[[], None]) -> None:
        self._fill, self._clock, self._poke = fill, clock, poke
        self._wanted: dict[int, _Wanted] = {}
        self._held: dict[int, OutboxRow] = {}
        """Until they are sent, or will not be: what follows for the same worker stays behind."""
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._renewal_turns = asyncio.Semaphore(AT_ONCE)

    @property
    def held(self) -> Collection[int]:
        """Ids of rows that wait here: `sort` knows them, nobody has to read them again."""
        return list(self._held)

    def sort(self, rows: Sequence[OutboxRow], *, full: bool = False) -> SortedStarts:
        """These and the rows that were held before, in their order. A start that is new here is
        asked for. `full`: rows that are not here may follow the last one."""
        found = SortedStarts([], [], [])
        workers: set[str] = set()
        last = rows[-1].outbox_id if full and rows else math.inf
        known = self._held | {row.outbox_id: row for row in rows}
        for _, row in sorted(known.items()):
            worker, wanted = row.message.ordering_key, self._of(row)
            if row.outbox_id > last:
                found.held.append(row)
            elif (wanted is not None and wanted.refused) and worker not in workers:
                found.refused.append((row, wanted.refused))
            elif worker in workers or (wanted is not None and wanted.message is None):
                found.held.append(row)
                # A stop does not wait for new tokens, as it waits for its start.
                if row.message.attributes.get("kind") != _RENEWAL:
                    workers |= {worker} - {""}
            else:
                found.ready.append(row)
        new = [row for row in found.held if row.outbox_id not in self._held]
        room = max(0, HELD_MAX - len(self._held))
        self._held |= {row.outbox_id: row for row in new[:room]}
        return found

    def message(self, row: OutboxRow) -> OutMessage:
        """The message with its values, for sealing alone."""
        wanted = self._wanted.get(row.outbox_id)
        return row.message if wanted is None or wanted.message is None else wanted.message

    def forget(self, rows: Sequence[OutboxRow]) -> None:
        """They are sent, or will not be."""
        for row in rows:
            self._held.pop(row.outbox_id, None)
            if (wanted := self._wanted.pop(row.outbox_id, None)) is not None:
                wanted.task.cancel()

    def close(self) -> None:
        """Another replica leads now."""
        for wanted in self._wanted.values():
            wanted.task.cancel()
        self._wanted.clear()
        self._held.clear()

    def _of(self, row: OutboxRow) -> _Wanted | None:
        if SECRETS not in row.message.attributes and TOKENS not in row.message.attributes:
            return None
        wanted = self._wanted.get(row.outbox_id)
        if wanted is None:
            wanted = _Wanted(asyncio.create_task(self._ask(row), name="start secrets"))
            self._wanted[row.outbox_id] = wanted
        return wanted

    async def _ask(self, row: OutboxRow) -> None:
        wanted = self._wanted[row.outbox_id]
        renews = row.message.attributes.get("kind") == _RENEWAL
        since, pause_s = self._clock.monotonic(), AGAIN_FIRST_S
        while True:
            try:
                async with self._renewal_turns if renews else self._turns:
                    wanted.message = await self._fill.filled(row.message)
            except (SecretsAway, StoreDown) as error:
                if isinstance(error, TokensAway):  # its secrets, if it has any, have come
                    since = self._clock.monotonic()
                if isinstance(error, TokensAway) or self._clock.monotonic() - since < WAIT_S:
                    log.warning(
                        "secrets of a start", lease=start_lease(row.message), why=str(error)
                    )
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, AGAIN_MAX_S)
                    continue
                wanted.refused = f"{error} for {WAIT_S:g} s: submit the job again later"
            except ZenError as error:
                wanted.refused = str(error)
            except Exception as error:  # its words may hold a value: only its kind is told
                log.error("secrets of a start", kind=type(error).__name__)
                wanted.refused = f"its secrets could not be read ({type(error).__name__})"
            break
        self._poke()
