"""Topics whose messages are submissions of one tenant, by any publisher."""

from __future__ import annotations

from dataclasses import dataclass

from core.access import Principal, Right, Scope, Tenants

NOBODY = "0"
"""The user of submissions that name none."""


@dataclass(frozen=True, slots=True)
class TopicBinding:
    """Who may publish on the topic is the bus's affair; what is published is this tenant's."""

    topic: str
    tenant_id: str
    user_id: str | None = None
    """Whose jobs they are; None: each message may name any user of the tenant."""

    @property
    def principal(self) -> Principal:
        """As which its messages submit."""
        return Principal(
            name=f"topic:{self.topic}",
            user_id=self.user_id or NOBODY,
            label=self.topic,
            allowed={Right.JOBS_SUBMIT: Tenants(frozenset({self.tenant_id}))},
            scopes=frozenset() if self.user_id else frozenset({Scope.ON_BEHALF_OF}),
        )


def subscription_of(topic: str) -> str:
    """What the service reads of a topic of submissions."""
    return f"{topic}-scheduler"
