"""Submissions by message: whose they are, and by what they are believed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from core.access import Scope
from core.names import Names
from core.submit_topics import TopicBinding
from messaging.submissions import without_key
from scheduler.submission.message_submitters import SubmitTopic, submit_topics
from tests.access import known
from tests.builders import live
from tests.scheduler.api.fakes import CLUSTERS
from tests.scheduler.submission.test_pubsub_intake import TenantAccess, message

NAMES = Names()
TOPIC = NAMES.submit_topic
OPEN = SubmitTopic(TOPIC)
VISION = SubmitTopic("vision-jobs", TopicBinding("vision-jobs", "vision"))
BODY = {"job_id": "a", "command": ["true"]}
ADA, ADA_KEY = known("ada000000000", ("vision", "submitter"))
VIEWER, VIEWER_KEY = known("viewer000000", ("vision", "viewer"))
SERVICE, SERVICE_KEY = known(
    "service00000", ("vision", "member"), user_id="svc", scopes=frozenset({Scope.ON_BEHALF_OF})
)
KEYS = (ADA_KEY, VIEWER_KEY, SERVICE_KEY)


def door(topic: SubmitTopic) -> TenantAccess:
    return TenantAccess(live(*CLUSTERS), topic, *KEYS)


async def refusal(made: TenantAccess) -> str:
    """Why nothing was submitted: nothing else is stored."""
    assert await made.jobs() == []
    assert made.store.tables.audit_log == []
    page = await made.reads.dead_letters(None, 10, None)
    (row,) = page.rows
    return row.dead_letter.reason


async def owner_of(made: TenantAccess, user_id: str) -> tuple[str, str]:
    spec = (await made.store.find_job("a", user_id)).spec
    return spec.tenant_id, spec.user_id


@pytest.mark.parametrize("attribute", [{"zen-key": ADA}, {"authorization": f"Bearer {ADA}"}])
async def test_a_key_makes_the_message_its_owners(attribute: Mapping[str, str]) -> None:
    """Tenant and user are the key's; the audit log has the key, the topic and the message."""
    made = door(OPEN)
    await made.bring(message(BODY, 1, **attribute))
    assert await owner_of(made, "ada") == ("vision", "ada")
    (row,) = made.store.tables.audit_log
    actor = row.entry.actor
    assert (actor.principal, actor.address) == ("key:ada000000000", f"pubsub/{TOPIC}")
    assert (row.entry.action, row.entry.target, actor.request_id) == (
        *("job.submit", "job/vision/ada/a"),
        "m-1",
    )


async def test_without_a_key_on_an_open_topic_nothing_is_submitted() -> None:
    """The dead letter says what to send, or what to configure."""
    made = door(OPEN)
    await made.bring(message(BODY))
    assert await refusal(made) == (
        "no credentials: send an API key as the attribute zen-key, or bind the topic to one tenant "
        "in the configuration: submit: {topics: {pipeline-zen-jobs-submit: {tenant: …}}}"
    )


@pytest.mark.parametrize(
    ("key", "body", "words"),
    [
        (ADA[:-1] + "1", BODY, "the key is wrong"),
        ("hunter2", BODY, "no API key"),
        (VIEWER, BODY, "may submit for: none"),
        (ADA, {**BODY, "tenant_id": "bank"}, "tenant_id: got bank"),
        (ADA, {**BODY, "user_id": "eve"}, "user_id: got eve"),
        (SERVICE, {**BODY, "tenant_id": "bank"}, "tenant_id: got bank"),
    ],
)
@pytest.mark.parametrize("topic", [OPEN, VISION])
async def test_a_key_goes_no_further_than_its_grants(
    topic: SubmitTopic, key: str, body: Mapping[str, object], words: str
) -> None:
    """On a bound topic too: a key that is wrong is not overlooked."""
    made = door(topic)
    await made.bring(message(body, 1, **{"zen-key": key}))
    assert words in await refusal(made)


async def test_a_service_submits_for_its_users() -> None:
    """The audit log names both."""
    made = door(OPEN)
    await made.bring(message({**BODY, "user_id": "eve"}, 1, **{"zen-key": SERVICE}))
    assert await owner_of(made, "eve") == ("vision", "eve")
    (row,) = made.store.tables.audit_log
    assert row.entry.detail == {"on_behalf_of": "eve"}


async def test_a_bound_topic_is_its_tenants() -> None:
    """Without a key; also a message that names another tenant is not that tenant's."""
    made = door(VISION)
    await made.bring(message({**BODY, "user_id": "eve"}))
    assert await owner_of(made, "eve") == ("vision", "eve")
    assert made.store.tables.audit_log[0].entry.actor.principal == "topic:vision-jobs"
    other = door(VISION)
    await other.bring(message({**BODY, "tenant_id": "bank"}, reply_topic="upstream"))
    assert "tenant_id: got bank" in await refusal(other)
    told = json.loads(other.bus.sent[0].body)
    assert (told["status"], told["code"]) == ("refused", "forbidden")


async def test_a_topic_bound_to_one_user_takes_no_other() -> None:
    """Messages that name none are that user's."""
    topic = SubmitTopic("night", TopicBinding("night", "vision", "nightly"))
    made = door(topic)
    await made.bring(message(BODY))
    assert await owner_of(made, "nightly") == ("vision", "nightly")
    other = door(topic)
    await other.bring(message({**BODY, "user_id": "eve"}))
    assert "user_id: got eve" in await refusal(other)


async def test_the_key_is_nowhere_afterwards() -> None:
    """Not in the dead letter, its copy on the bus, the reply, or the audit log."""
    made = door(OPEN)
    bad = message({"job_id": "a"}, 1, **{"Zen-Key": ADA}, reply_topic="upstream", kept="yes")
    good = message(
        {**BODY, "job_id": "b"}, 2, Authorization=f"Bearer {ADA}", reply_topic="upstream"
    )
    await made.bring(bad, good)
    page = await made.reads.dead_letters(None, 10, None)
    outbox = await made.outbox()
    assert [m.attributes["kept"] for m in outbox] == ["yes"]
    left = repr((page.rows, outbox, made.bus.sent, made.store.tables))
    secret = ADA.rpartition("_")[2]
    assert secret not in left
    assert secret not in repr(without_key(bad))


async def test_a_dead_letter_of_a_bound_topic_goes_back_there() -> None:
    """On another topic it would be another tenant's."""
    made = door(VISION)
    await made.bring(message({"job_id": "a"}))
    page = await made.reads.dead_letters(None, 10, None)
    assert page.rows[0].dead_letter.source == "vision-jobs"


def test_the_topic_of_the_deployment_is_always_read() -> None:
    """Bound or not, once."""
    bound = (VISION.binding, TopicBinding(TOPIC, "default"))
    assert submit_topics(NAMES, ()) == (OPEN,)
    assert [t.subscription for t in submit_topics(NAMES, bound)] == [  # type: ignore[arg-type]
        "pipeline-zen-jobs-submit-scheduler",
        "vision-jobs-scheduler",
    ]
    assert submit_topics(NAMES, bound)[0].binding is bound[1]  # type: ignore[arg-type]
