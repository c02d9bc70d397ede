"""The control subscriptions of VMs: the scheduler makes one for each boot that it has accepted, and
takes it away when that boot is over. VMs may read theirs, and neither make nor list nor delete any.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from google.api_core import exceptions as google_errors
from google.protobuf import duration_pb2
from google.pubsub_v1 import types

from core.names import BadName, Names
from messaging.channel import explain
from messaging.pubsub import ACK_DEADLINE_S, CALL_TIMEOUT_S, PubSubBus, delete_subscription

EXPIRES_AFTER = timedelta(days=1)
"""The shortest that Google allows: what is left behind goes away by itself."""
RETENTION = timedelta(hours=1)
"""An order older than this was abandoned by its sender long ago."""
ID_CHARS_MAX = 255
READER_ROLE = "roles/pubsub.subscriber"
PAGE = 1000
PAGES_MAX = 20
"""20,000 subscriptions, twice what a project may have."""

_VM_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_NONCE = re.compile(r"[A-Za-z0-9]{1,64}\Z")


class PubSubControlSubscriptions:
    """core.ports.ControlSubscriptions over Pub/Sub. `reader`: the service account of the VMs, if
    they may read nothing but what they are let read here."""

    def __init__(self, bus: PubSubBus, names: Names, reader: str | None = None) -> None:
        self._bus, self._names, self._reader = bus, names, reader

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        """Made twice is made once: the nonce is in the name."""
        subscription = self._id(vm_name, boot_nonce)
        request = types.Subscription(
            name=self._bus.subscription_path(subscription),
            topic=self._bus.topic_path(self._names.control_topic),
            ack_deadline_seconds=ACK_DEADLINE_S,
            filter=f'attributes.vm_name = "{vm_name}"',
            enable_message_ordering=True,
            message_retention_duration=_duration(RETENTION),
            expiration_policy=types.ExpirationPolicy(ttl=_duration(EXPIRES_AFTER)),
        )
        try:
            await self._bus.subscriber.create_subscription(
                request, retry=None, timeout=CALL_TIMEOUT_S
            )
        except google_errors.AlreadyExists:
            pass  # a leader before us has made it, and may have come no further
        except google_errors.NotFound as error:
            raise explain(error, f"topic {self._names.control_topic}") from error
        except google_errors.GoogleAPIError as error:
            raise explain(error, f"subscription {subscription}") from error
        if self._reader is not None:
            await self._let_read(subscription, self._reader)

    async def _let_read(self, subscription: str, reader: str) -> None:
        """Nobody else has a right on it of its own: the policy is new, or the same as before."""
        binding = {"role": READER_ROLE, "members": [f"serviceAccount:{reader}"]}
        request = {
            "resource": self._bus.subscription_path(subscription),
            "policy": {"bindings": [binding]},
        }
        try:
            await self._bus.subscriber.set_iam_policy(request, retry=None, timeout=CALL_TIMEOUT_S)
        except google_errors.GoogleAPIError as error:
            raise explain(error, f"policy of subscription {subscription}") from error

    async def remove(self, subscription: str) -> None:
        """Removed twice is removed once."""
        await delete_subscription(self._bus, subscription)

    async def all(self) -> Sequence[str]:
        """The ids of all that are on the control topic."""
        topic = self._names.control_topic
        request = types.ListTopicSubscriptionsRequest(
            topic=self._bus.topic_path(topic), page_size=PAGE
        )
        found: list[str] = []
        try:
            pages = await self._bus.publisher.list_topic_subscriptions(
                request, retry=None, timeout=CALL_TIMEOUT_S
            )
            read = 0
            async for page in pages.pages:
                found += [path.rpartition("/")[2] for path in page.subscriptions]
                read += 1
                if read == PAGES_MAX:
                    break
        except google_errors.GoogleAPIError as error:
            raise explain(error, f"topic {topic}") from error
        return found

    def _id(self, vm_name: str, boot_nonce: str) -> str:
        subscription = self._names.control_subscription(vm_name, boot_nonce)
        if not _VM_NAME.match(vm_name) or not _NONCE.match(boot_nonce):
            raise BadName(
                f"control subscription: got VM {vm_name!r} and boot nonce {boot_nonce!r}, expected "
                "a VM name (a-z, 0-9, '-', at most 63) and letters and digits"
            )
        if len(subscription) > ID_CHARS_MAX:
            raise BadName(
                f"subscription {subscription!r} has {len(subscription)} characters, "
                f"expected at most {ID_CHARS_MAX}"
            )
        return subscription


def _duration(span: timedelta) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=int(span.total_seconds()))
