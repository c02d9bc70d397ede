"""Topics that are bound to a tenant."""

from __future__ import annotations

from core.access import Right, Scope
from core.names import Names
from core.submit_topics import TopicBinding, subscription_of


def test_a_bound_topic_may_submit_for_its_tenant_and_nothing_else() -> None:
    """It reads nothing, stops nothing, and knows no other tenant."""
    who = TopicBinding("t", "vision").principal
    assert who.may(Right.JOBS_SUBMIT, "vision")
    assert not who.may(Right.JOBS_SUBMIT, "default")
    assert [right for right in Right if who.may(right)] == [Right.JOBS_SUBMIT]
    assert who.scopes == {Scope.ON_BEHALF_OF}
    assert TopicBinding("t", "vision", "ada").principal.scopes == frozenset()


def test_the_subscription_of_the_deployments_topic_keeps_its_name() -> None:
    """Installations have it already."""
    assert subscription_of(Names().submit_topic) == Names().submit_subscription
