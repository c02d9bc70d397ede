"""Who submits by a message: the owner of the key that it carries, or the tenant of its topic."""

from __future__ import annotations

from dataclasses import dataclass

from core.access import Principal, Right, Tenants
from core.audit_log import Actor
from core.groups import Owner
from core.names import Names
from core.submit_topics import TopicBinding, subscription_of
from messaging.submissions import KEY, MessageKey
from scheduler.access.authenticator import Authenticator, Unauthenticated
from scheduler.access.claims import claimed


@dataclass(frozen=True, slots=True)
class MessageSubmitter:
    """The principal of one message."""

    principal: Principal
    topic: str
    message_id: str

    @property
    def actor(self) -> Actor:
        who = self.principal
        return Actor(who.name, who.user_id, f"pubsub/{self.topic}", self.message_id)

    @property
    def tenants(self) -> Tenants:
        return self.principal.tenants(Right.JOBS_SUBMIT)

    def claim(self, named: Owner) -> Owner:
        return claimed(self.principal, named)


@dataclass(frozen=True, slots=True)
class SubmitTopic:
    """One topic of submissions, and by what its messages are believed."""

    name: str
    binding: TopicBinding | None = None
    """None: each message needs a key."""

    @property
    def subscription(self) -> str:
        return subscription_of(self.name)

    async def submitter(
        self, key: MessageKey | None, message_id: str, keys: Authenticator | None
    ) -> MessageSubmitter:
        """Unauthenticated says what is missing. A key that a message carries counts, also on a
        topic that is bound: a wrong one is refused."""
        if key is not None and keys is not None:
            return MessageSubmitter(await keys.by_key(key.text), self.name, message_id)
        if key is None and self.binding is not None:
            return MessageSubmitter(self.binding.principal, self.name, message_id)
        raise Unauthenticated(
            f"no credentials: send an API key as the attribute {KEY}, or bind the topic to one "
            f"tenant in the configuration: submit: {{topics: {{{self.name}: {{tenant: …}}}}}}"
        )


def submit_topics(names: Names, bindings: tuple[TopicBinding, ...]) -> tuple[SubmitTopic, ...]:
    """All that is read: the topic of the deployment, and each topic that is bound."""
    found = {names.submit_topic: SubmitTopic(names.submit_topic)}
    found |= {binding.topic: SubmitTopic(binding.topic, binding) for binding in bindings}
    return tuple(found.values())
