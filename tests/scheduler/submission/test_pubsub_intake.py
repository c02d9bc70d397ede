"""Submissions by Pub/Sub message: both bodies, the dead letter, and the answer."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from config.live import LiveSettings
from core.access_store import KnownKey
from core.changes import AtomicBatch, Committed
from core.errors import BusDown, StoreDown, ZenError
from core.ids import RandomIds
from core.messages import InMessage, OutMessage
from core.names import Names
from core.reads import JobFilter
from core.submit_topics import TopicBinding
from messaging.errors import BadMessage, BusRefused
from messaging.submissions import reply_topic
from scheduler.access.authenticator import Authenticator
from scheduler.submission.group_commit import GroupCommit
from scheduler.submission.message_submitters import SubmitTopic
from scheduler.submission.pubsub_intake import TOGETHER_MAX, IntakePorts, SubmissionIntake
from scheduler.submission.submit import SubmissionPorts, Submissions
from scheduler.submission.tenant_access import TenantAccess as TenantsDoor
from sim.memory.access import MemoryAccess
from sim.memory.reads import MemoryReads
from sim.memory.store import MemoryStore
from tests.builders import live
from tests.scheduler.api.fakes import CLUSTERS, NOW, StillClock

NAMES = Names()
BOUND = SubmitTopic(NAMES.submit_topic, TopicBinding(NAMES.submit_topic, "default"))
V1 = {"job_id": "a", "user_id": "ada", "workflow": "echo", "args": {"x": 1}, "gpu_type": "l4"}
NATIVE = {"job_id": "a", "user_id": "ada", "command": ["true"], "args": ["-x"]}


@dataclass
class Post:
    """A bus that remembers, or refuses."""

    sent: list[OutMessage] = field(default_factory=list)
    block: ZenError | None = None
    acked: list[str] = field(default_factory=list)
    nacked: list[str] = field(default_factory=list)

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        if self.block is not None:
            raise self.block
        self.sent += messages
        return ["1"] * len(messages)

    async def ack(self, ack_ids: Sequence[str]) -> None:
        self.acked += ack_ids

    async def nack(self, ack_ids: Sequence[str]) -> None:
        self.nacked += ack_ids

    def subscribe(self, subscription: str, *, max_messages: int = 1000):  # type: ignore[no-untyped-def]
        raise AssertionError("these tests hand the messages over themselves")


class TenantAccess:
    """The intake over a store in memory."""

    def __init__(
        self, settings: LiveSettings | None = None, topic: SubmitTopic = BOUND, *keys: KnownKey
    ) -> None:
        clock = StillClock()
        self.store = MemoryStore(clock)
        self.reads = MemoryReads(self.store)
        self.bus = Post()

        write = GroupCommit(self.store).submit
        ids = RandomIds(random.Random(3))
        asks = TenantsDoor(self.store, settings, clock) if settings is not None else None
        submissions = Submissions(
            SubmissionPorts(write, self.store, clock, ids),
            settings or live(*CLUSTERS),
            door=asks,
        )
        authenticator = Authenticator(MemoryAccess(keys), clock)
        ports = IntakePorts(self.bus, write, clock, authenticator)
        self.intake = SubmissionIntake(ports, NAMES, submissions, topic)

    async def bring(self, *messages: InMessage) -> None:
        await self.intake._take(self.bus, messages)  # type: ignore[arg-type]

    async def jobs(self) -> list[tuple[str, str]]:
        page = await self.reads.jobs(JobFilter(), 100, None)
        return sorted(row.job.v1_key for row in page.rows)

    async def outbox(self) -> list[OutMessage]:
        return [row.message for row in await self.store.outbox(100)]


def message(body: object, number: int = 1, **attributes: str) -> InMessage:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return InMessage(f"ack-{number}", f"m-{number}", NOW, data, attributes)


@pytest.mark.parametrize("body", [V1, NATIVE])
async def test_both_bodies_become_jobs(body: object) -> None:
    """A v1 and a native body are stored and acknowledged; a second delivery is the same job."""
    door = TenantAccess()
    await door.bring(message(body), message(body, 2))
    assert await door.jobs() == [("ada", "a")]
    assert (door.bus.acked, door.bus.nacked, door.bus.sent) == (["ack-1", "ack-2"], [], [])
    assert await door.outbox() == []


async def test_a_manifest_becomes_a_job() -> None:
    """A UnifiedJob manifest, with all members of the elastic job that it stands for."""
    door = TenantAccess()
    manifest = {
        "apiVersion": "ai.centauruscloud.io/v1alpha1",
        "kind": "UnifiedJob",
        "metadata": {"name": "mnist"},
        "jobType": "EPJob",
        "spec": {
            "jobSpec": {"unifiedArgs": ["train.py"]},
            "replicaSpec": {"minReplicas": 1, "maxReplicas": 2},
        },
    }
    await door.bring(message(manifest))
    assert await door.jobs() == [("0", "mnist")]
    spare = await door.store.find_job("mnist.1", "0")
    assert (spare.parked, spare.spec.command) == (True, ("torchrun", "train.py"))


@pytest.mark.parametrize("body", [V1, NATIVE])
async def test_a_reply_tells_the_price(body: object) -> None:
    """Cluster, machine, price per hour and spot or not, before anything is bought."""
    door = TenantAccess()
    await door.bring(message(body, reply_topic="upstream"))
    told = json.loads(door.bus.sent[0].body)
    assert (told["cluster"], told["machine_type"], told["spot"]) == ("1xl4", "machine-1xl4", False)
    assert (told["usd_per_hour"], told["total_usd_per_hour"]) == (0.7, 1.7)


@pytest.mark.parametrize("body", [V1, NATIVE])
async def test_a_dear_message_is_refused(body: object) -> None:
    """Nobody can be asked: the reply and the dead letter name the price and the tenant's limit."""
    door = TenantAccess(live(*CLUSTERS, confirm_above_usd_per_hour=1.0))
    await door.bring(message(body, reply_topic="upstream"))
    told = json.loads(door.bus.sent[0].body)
    assert (told["status"], told["code"]) == ("refused", "price_not_confirmed")
    assert "$1.70/h" in (await door.reads.dead_letter("m-1")).dead_letter.reason
    assert await door.jobs() == []


async def test_v1_body_is_the_job_that_rest_makes() -> None:
    """Workflow, arguments and cluster as on the v1 routes; fields nobody knows are ignored."""
    door = TenantAccess()
    await door.bring(message({**V1, "num_gpus": 1, "keep_alive": True, "trace": "x"}))
    job = await door.store.find_job("a", "ada")
    assert (job.cluster, job.spec.workflow, job.spec.workflow_args) == ("1xl4", "echo", {"x": 1})
    assert job.spec.keep_alive


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({**V1, "num_gpus": 3}, ["gpu_type, num_gpus: unknown cluster 3xl4"]),
        ({"num_gpus": "x", "args": 3}, ["job_id", "workflow", "args", "gpu_type", "num_gpus"]),
        ({**NATIVE, "colour": 1, "priority": -1}, ["colour", "priority"]),
        (b"{", ["body: got"]),
        (b'{"command": ["a\\u0000b"]}', ["NUL"]),
        ([1], ["body"]),
    ],
)
async def test_refused_is_a_dead_letter_with_every_fault(body: object, words: list[str]) -> None:
    """Kept in the database and sent to the dead-letter topic as it came, faults beside it; nothing
    of it becomes a job, and it is not asked for again."""
    door = TenantAccess()
    sent = message(body, origin="pipeline")
    await door.bring(sent)
    assert await door.jobs() == []
    assert door.bus.acked == ["ack-1"]
    dead_letter = (await door.reads.dead_letter("m-1")).dead_letter
    (dead,) = await door.outbox()
    assert (dead.topic, dead.body) == (NAMES.submit_dead_topic, sent.body)
    assert dead.attributes["origin"] == "pipeline"
    told = " ".join(dead.attributes.values())
    for word in words:
        assert word in dead_letter.reason
        assert word in told
    assert all(len(value.encode()) <= 1024 for value in dead.attributes.values())


async def test_other_content_under_the_same_id_is_refused() -> None:
    """The first one stays; the second is a dead letter that says so."""
    door = TenantAccess()
    await door.bring(message(V1), message({**V1, "workflow": "other"}, 2))
    assert (await door.store.find_job("a", "ada")).spec.workflow == "echo"
    assert "exists with other content" in (await door.reads.dead_letter("m-2")).dead_letter.reason


async def test_every_question_is_answered() -> None:
    """accepted with the job, refused with every fault; the asker's own id comes back."""
    door = TenantAccess()
    wanted = {"reply_topic": "upstream-answers", "correlation_id": "c-7"}
    await door.bring(message(V1, 1, **wanted), message({"args": {}}, 2, **wanted))
    good, bad = door.bus.sent
    assert good.topic == bad.topic == "upstream-answers"
    assert good.attributes == {
        "kind": "submission_reply",
        "status": "accepted",
        "in_reply_to": "m-1",
        "correlation_id": "c-7",
    }
    body = json.loads(good.body)
    assert {k: body[k] for k in ("status", "job_id", "user_id", "cluster")} == {
        "status": "accepted",
        "job_id": "a",
        "user_id": "ada",
        "cluster": "1xl4",
    }
    refusal = json.loads(bad.body)
    assert (refusal["status"], refusal["code"]) == ("refused", "bad_input")
    assert {f["field"] for f in refusal["faults"]} == {"job_id", "workflow", "gpu_type"}
    assert bad.attributes["status"] == "refused"
    assert door.bus.acked == ["ack-1", "ack-2"]


async def test_answer_that_could_not_be_sent_is_tried_again() -> None:
    """While the bus is away the message stays on it: the job is one, the answer comes later. A
    topic that the bus refuses holds nothing up."""
    door = TenantAccess()
    asked = message(V1, reply_topic="upstream")
    door.bus.block = BusDown("away")
    await door.bring(asked)
    assert (door.bus.nacked, await door.jobs()) == (["ack-1"], [("ada", "a")])
    door.bus.block = None
    await door.bring(asked)
    assert (len(door.bus.sent), door.bus.acked, await door.jobs()) == (1, ["ack-1"], [("ada", "a")])
    door.bus.block = BusRefused("no such topic")
    await door.bring(asked)
    assert door.bus.acked == ["ack-1", "ack-1"]
    assert await door.outbox() == []


async def test_database_outage_keeps_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost or refused while the database is away, and what comes behind the messages
    that are written together does not ask it again."""
    door = TenantAccess()
    asked: list[object] = []

    async def away(*_: object) -> None:
        asked.append(_)
        raise StoreDown("away")

    monkeypatch.setattr(door.store, "commit", away)
    waits = {"command": ["true"], "after": ["a"]}
    await door.bring(message(V1, reply_topic="upstream"), message(waits, 2))
    assert (door.bus.acked, door.bus.nacked, door.bus.sent) == ([], ["ack-1", "ack-2"], [])
    assert len(asked) == 1


async def test_messages_share_a_commit() -> None:
    """Submissions and refusals that are read together are written together, up to a bound."""
    door = TenantAccess()
    sizes: list[int] = []
    commit = door.store.commit

    async def counted(batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        sizes.append(len(batches))
        return await commit(batches, term)

    door.store.commit = counted  # type: ignore[method-assign]
    many = [{"command": ["true"], "job_id": f"j-{n}"} for n in range(TOGETHER_MAX)]
    await door.bring(message(b"{"), *(message(body, n) for n, body in enumerate(many, 2)))
    assert len(await door.jobs()) == TOGETHER_MAX
    assert sizes == [TOGETHER_MAX, 1]


async def test_arrays_that_come_together_wait_for_their_turn() -> None:
    """None stays on the bus because others wait."""
    door = TenantAccess()
    many = [{"command": ["true"], "job_id": f"a-{n}", "array": "1-101"} for n in range(20)]
    await door.bring(*(message(body, n) for n, body in enumerate(many, 1)))
    assert (len(door.bus.acked), door.bus.nacked) == (20, [])


async def test_a_job_may_wait_for_one_that_came_with_it() -> None:
    """Both messages are read together; the second names the first."""
    door = TenantAccess()
    first = {"command": ["true"], "job_id": "first"}
    await door.bring(message(first), message({**first, "job_id": "b", "after": ["first"]}, 2))
    assert len(await door.jobs()) == 2
    assert await door.outbox() == []


@pytest.mark.parametrize(
    "topic",
    [
        *(NAMES.control_topic, NAMES.heartbeat_topic, NAMES.start_topic, NAMES.submit_topic),
        *("pipeline-zen-jobs", "pipeline-zen-jobs-other", "projects/x/topics/y", "a/b", "../up"),
        *("go", "goog-topic", "9lives", "a b c", "abc\n", "x" * 256, "тема", "abc\0"),
    ],
)
async def test_answers_never_go_to_our_own_topics(topic: str) -> None:
    """A submitter cannot make us speak to our workers, or to what is no topic; it is refused with
    the attribute named, and no job is made."""
    with pytest.raises(BadMessage, match=r"attributes.reply_topic: got"):
        reply_topic({"reply_topic": topic}, NAMES)
    door = TenantAccess()
    await door.bring(message(V1, reply_topic=topic))
    assert (await door.jobs(), door.bus.sent, door.bus.acked) == ([], [], ["ack-1"])
    assert "reply_topic" in (await door.reads.dead_letter("m-1")).dead_letter.reason


def test_reply_topics_of_our_own_prefix() -> None:
    """Only the ones that are named for it."""
    name = "pipeline-zen-jobs-submit-replies-team-a"
    assert reply_topic({"reply_topic": name}, NAMES) == name
    assert reply_topic({}, NAMES) is None
    assert reply_topic({"reply_topic": ""}, NAMES) is None
