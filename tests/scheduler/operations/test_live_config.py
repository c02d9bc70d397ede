"""Live configuration: edits are noticed, judged, recorded once, and adopted by every replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from config.errors import ConfigError
from config.reload import Reader
from config.settings import Settings
from config.watch import FileLook
from core.errors import NotFound, StoreDown
from core.job import JobEvent as E
from scheduler.operations.live_config import ASK_S, REPEAT_S, ConfigParts, FileStatus, LiveConfig
from sim.memory.config_versions import MemoryConfigVersions
from sim.memory.reads import MemoryReads
from sim.memory.store import MemoryStore
from tests.config.test_load import MINIMAL
from tests.config.test_reload import TWO
from tests.db.builders import T0, Maker, put, step, submitted
from tests.db.contract.audit import ADA

E6 = MINIMAL.replace("vm_max: 3", "vm_max: 6")
E9 = MINIMAL.replace("vm_max: 3", "vm_max: 9")
TYPO = MINIMAL.replace("vm_max: 3", "vm_mxa: 6")
NEGATIVE = MINIMAL.replace("vm_max: 3", "vm_max: -6")


class HandClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.passed_s)

    def monotonic(self) -> float:
        return self.passed_s


class Paper:
    """A file in memory; several replicas may look at the same one."""

    path = "/etc/zen/zen.yaml"

    def __init__(self, text: str) -> None:
        self.write(text)

    def write(self, text: str) -> None:
        self._look = FileLook(text.encode(), (hash(text),))

    def touch(self) -> None:
        self._look = FileLook(self._look.raw, (*self._look.mark, 1))

    def lose(self) -> None:
        self._look = FileLook(b"", error="No such file or directory")

    def look(self) -> FileLook:
        return self._look


@dataclass
class Desk:
    """One replica's half of it."""

    live: LiveConfig
    paper: Paper
    adopted: list[Settings]

    @property
    def vm_max(self) -> int:
        return self.adopted[-1].clusters[0].vm_max


@dataclass
class House:
    """Replicas over one store."""

    clock: HandClock = field(default_factory=HandClock)
    desks: list[Desk] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.versions = MemoryConfigVersions(self.store)

    def start(
        self,
        text: str,
        *,
        paper: Paper | None = None,
        started: str | None = None,
        host: str = "",
    ) -> Desk:
        """A replica that was started with this file, or with something else beside a bad one; on a
        host of its own, unless one is named."""
        reader = Reader({"DATABASE_URL": "postgresql://me:secret@db/zen"})
        file = paper or Paper(text)
        candidate = reader.file((started or text).encode(), file.path)
        adopted: list[Settings] = []
        name = f"replica-{len(self.desks) + 1}"
        parts = ConfigParts(reader, candidate, file, self.versions, host=host or name)
        live = LiveConfig(parts, self.store, self.clock, name, adopted.append)
        self.desks.append(Desk(live, file, adopted))
        return self.desks[-1]

    async def pass_s(self, seconds: float) -> None:
        """Every replica looks four times a second."""
        for _ in range(int(seconds * 4)):
            for desk in self.desks:
                await desk.live.look()
            self.clock.passed_s += 0.25

    async def alerts(self) -> list[tuple[str, str]]:
        rows = await MemoryReads(self.store).alerts(True, 10)
        return [(row.kind, row.message) for row in rows]

    async def history(self) -> list[tuple[int, str, tuple[str, ...]]]:
        rows = (await self.versions.history(50, None)).rows
        return [(row.version, row.source, row.diff) for row in reversed(rows)]


@pytest.fixture
def house() -> House:
    return House()


async def test_the_first_start_records_the_file(house: House) -> None:
    """An empty database gets version 1; what is in force is applied before anybody leads."""
    desk = house.start(MINIMAL)
    assert not desk.live.synced.is_set()
    await house.pass_s(1)
    assert desk.live.synced.is_set()
    assert await house.history() == [(1, Paper.path, ())]
    assert desk.live.report.standing is FileStatus.IN_FORCE
    assert desk.adopted[-1].database_url == "postgresql://me:secret@db/zen"
    assert "secret" not in repr(house.store.tables.configs)


async def test_an_edit_is_applied_once_and_by_all(house: House) -> None:
    """Two replicas that watch the same file record one version; a third with a file of its own
    adopts it. All within a second and a half."""
    shared = Paper(MINIMAL)
    one, two = house.start(MINIMAL, paper=shared), house.start(MINIMAL, paper=shared)
    other = house.start(MINIMAL)
    await house.pass_s(2)
    shared.write(E6)
    await house.pass_s(0.5 + ASK_S)
    assert [desk.vm_max for desk in (one, two, other)] == [6, 6, 6]
    diff = ("clusters.1xl4.vm_max: 3 → 6",)
    assert await house.history() == [(1, Paper.path, ()), (2, Paper.path, diff)]
    assert one.live.report.standing is two.live.report.standing is FileStatus.IN_FORCE
    assert other.live.report.standing is FileStatus.DIFFERS
    assert other.live.report.diff == ("clusters.1xl4.vm_max: 6 → 3",)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (TYPO, "vm_mxa"),
        (NEGATIVE, "got -6"),
        (MINIMAL + "nonsense: 1\n", "nonsense"),
        ("{", "YAML"),
        ("", "project"),
        (MINIMAL.replace("some-project", "some-other-project"), "restart the service"),
        (MINIMAL + "timers: {self_stop_after_s: 40}\n", "instance templates"),
        (
            MINIMAL.replace(
                "vm_max: 3",
                "vm_max: 3\n    worker: v1\n    trusted_tenants_only: true\n    share: true",
            ),
            "one job",
        ),
    ],
)
async def test_a_bad_edit_changes_nothing(house: House, bad: str, word: str) -> None:
    """It is refused within a second with its reason, an alert stands until it is mended, and the
    last good one stays in force."""
    desk = house.start(MINIMAL)
    await house.pass_s(2)
    desk.paper.write(bad)
    await house.pass_s(0.75)
    assert desk.live.report.standing is FileStatus.REFUSED
    ((kind, message),) = await house.alerts()
    assert kind == "config_refused"
    assert word in message
    assert desk.vm_max == 3
    assert len(await house.history()) == 1
    desk.paper.write(E6)
    await house.pass_s(0.75)
    assert await house.alerts() == []
    assert (desk.vm_max, desk.live.report.standing) == (6, FileStatus.IN_FORCE)


async def test_half_a_file_is_not_believed(house: House) -> None:
    """Content that was seen only once may be half of what an editor is writing: E9 would be good,
    but it was never there twice."""
    desk = house.start(MINIMAL)
    await house.pass_s(2)
    for text in (E9, E6, E9, E6):
        desk.paper.write(text)
        await house.pass_s(0.25)
    await house.pass_s(0.5)
    assert [row[2] for row in await house.history()] == [(), ("clusters.1xl4.vm_max: 3 → 6",)]


async def test_a_file_that_is_gone(house: House) -> None:
    """It says so, and changes nothing; when it is back as it was, all is well."""
    desk = house.start(MINIMAL)
    await house.pass_s(2)
    desk.paper.lose()
    await house.pass_s(1)
    assert "No such file" in (await house.alerts())[0][1]
    desk.paper.write(MINIMAL)
    await house.pass_s(1)
    assert await house.alerts() == []
    assert len(await house.history()) == 1


async def test_a_cluster_with_jobs_stays(house: House) -> None:
    """Removing it is refused while a job has not ended, also a waiting one; with `drain: true` it
    is emptied first. A touch of the file tries again."""
    desk, maker = house.start(TWO), Maker()
    waiting = maker.job("waits", cluster="2xl4")
    await put(house.store, submitted(waiting))
    await house.pass_s(2)
    desk.paper.write(MINIMAL)
    await house.pass_s(1)
    assert "2xl4: got nothing, but it has 1 job" in (await house.alerts())[0][1]
    assert len(desk.adopted[-1].clusters) == 2
    desk.paper.write(TWO + "    drain: true\n")
    await house.pass_s(1)
    assert desk.adopted[-1].cluster("2xl4").drain
    await put(house.store, step(waiting, E.STOP_ASKED))
    desk.paper.write(MINIMAL)
    await house.pass_s(1)
    assert [cluster.name for cluster in desk.adopted[-1].clusters] == ["1xl4"]
    assert await house.alerts() == []


async def test_a_refused_edit_waits_for_a_hand(house: House) -> None:
    """The last job ends, and nothing is removed behind anybody's back: only a touch tries again."""
    desk, maker = house.start(TWO), Maker()
    waiting = maker.job("waits", cluster="2xl4")
    await put(house.store, submitted(waiting))
    await house.pass_s(2)
    desk.paper.write(MINIMAL)
    await house.pass_s(1)
    await put(house.store, step(waiting, E.STOP_ASKED))
    await house.pass_s(5)
    assert desk.live.report.standing is FileStatus.REFUSED
    desk.paper.touch()
    await house.pass_s(1)
    assert [cluster.name for cluster in desk.adopted[-1].clusters] == ["1xl4"]


async def test_started_with_a_bad_file(house: House) -> None:
    """A replica that goes on with the last good version says so until its file is mended."""
    house.start(MINIMAL)
    await house.pass_s(1)
    late = house.start(TYPO, started=MINIMAL)
    await house.pass_s(1)
    assert (late.vm_max, late.live.report.standing) == (3, FileStatus.REFUSED)
    assert (await house.alerts())[0][0] == "config_refused"
    late.paper.write(MINIMAL)
    await house.pass_s(1)
    assert await house.alerts() == []
    assert len(await house.history()) == 1


async def test_started_with_an_old_file(house: House) -> None:
    """A file that says what it said when its host last ran lags behind and is no edit; content that
    nobody has seen was edited while the replica was down."""
    desk, slow = house.start(MINIMAL), house.start(MINIMAL, host="slow")
    await house.pass_s(1)
    desk.paper.write(E6)
    await house.pass_s(1)
    house.desks.remove(slow)
    lagging = house.start(MINIMAL, host="slow")
    await house.pass_s(2)
    assert (lagging.vm_max, lagging.live.report.standing) == (6, FileStatus.DIFFERS)
    fresh = house.start(E9)
    await house.pass_s(2)
    assert [d.vm_max for d in (desk, lagging, fresh)] == [9, 9, 9]


@pytest.mark.parametrize("host", ["same", "made anew"])
async def test_set_back_while_nobody_was_awake(house: House, host: str) -> None:
    """An older file is put back in the night: it is in force in the morning, also on a host that
    was made anew, and once."""
    desk = house.start(MINIMAL, host="same")
    await house.pass_s(1)
    for text in (E6, E9):
        desk.paper.write(text)
        await house.pass_s(1)
    house.desks.clear()
    morning = house.start(E6, host=host)
    await house.pass_s(2)
    assert (morning.vm_max, morning.live.report.standing) == (6, FileStatus.IN_FORCE)
    assert [row[0] for row in await house.history()] == [1, 2, 3, 4]
    house.desks.clear()
    house.start(E6, host=host)
    await house.pass_s(2)
    assert len(await house.history()) == 4


async def test_set_back_elsewhere_while_others_are_awake(house: House) -> None:
    """Replicas with files of their own run on; the one whose file went back brings its edit."""
    desk, mine = house.start(MINIMAL), house.start(MINIMAL, host="mine")
    await house.pass_s(1)
    mine.paper.write(E6)
    await house.pass_s(2)
    house.desks.remove(mine)
    house.start(MINIMAL, host="mine")
    await house.pass_s(2)
    assert [d.vm_max for d in house.desks] == [3, 3]
    assert desk.live.report.standing is FileStatus.IN_FORCE


@pytest.mark.parametrize("host", ["same", "made anew"])
async def test_a_rollback_outlives_every_restart(house: House, host: str) -> None:
    """The file that was rolled back from is not put in force by a restart, nor by a touch; an edit
    of it is, also to what was in force by a rollback once, and also in the night."""
    desk = house.start(MINIMAL, host="same")
    await house.pass_s(1)
    for text in (E6, E9):
        desk.paper.write(text)
        await house.pass_s(1)
    for number in (2, 1):
        await desk.live.rollback(number, "ada", ADA)
    house.desks.clear()
    again = house.start(E9, host=host)
    await house.pass_s(2)
    again.paper.touch()
    await house.pass_s(2)
    assert (again.vm_max, again.live.report.standing) == (3, FileStatus.DIFFERS)
    house.desks.clear()
    edited = house.start(E6, host=host)
    await house.pass_s(2)
    assert (edited.vm_max, edited.live.report.standing) == (6, FileStatus.IN_FORCE)


async def test_a_database_without_memory_of_files(house: House) -> None:
    """It comes from an earlier version of the software: content that was recorded is no news."""
    desk = house.start(MINIMAL)
    await house.pass_s(1)
    desk.paper.write(E6)
    await house.pass_s(1)
    house.desks.clear()
    house.store.tables.config_files.clear()
    old = house.start(MINIMAL)
    await house.pass_s(2)
    assert (old.vm_max, old.live.report.standing) == (6, FileStatus.DIFFERS)


async def test_catching_up_is_no_edit(house: House) -> None:
    """A rollout brings two versions to one replica late: what others have recorded since is not
    undone on the way. Going back on purpose is an edit."""
    quick, slow = house.start(MINIMAL), house.start(MINIMAL)
    await house.pass_s(2)
    for text in (E6, E9):
        quick.paper.write(text)
        await house.pass_s(2)
    for text in (E6, E9):
        slow.paper.write(text)
        await house.pass_s(2)
    assert [row[0] for row in await house.history()] == [1, 2, 3]
    slow.paper.write(E6)
    await house.pass_s(2)
    assert [desk.vm_max for desk in (quick, slow)] == [6, 6]


async def test_rollback(house: House) -> None:
    """A new version says what an old one said; repeating it changes nothing; the file, which says
    something else, has no effect until it is edited, not even by a restart."""
    desk, other = house.start(MINIMAL), house.start(MINIMAL)
    await house.pass_s(1)
    desk.paper.write(E6)
    await house.pass_s(2)
    rolled = await desk.live.rollback(1, "ada", ADA)
    assert (rolled.changed, rolled.version.version, rolled.version.author) == (True, 3, "ada")
    assert rolled.version.diff == ("clusters.1xl4.vm_max: 6 → 3",)
    assert not (await other.live.rollback(1, "ada", ADA)).changed
    await house.pass_s(2)
    again = house.start(E6)
    await house.pass_s(2)
    assert [d.vm_max for d in house.desks] == [3, 3, 3]
    assert again.live.report.standing is FileStatus.DIFFERS
    assert (await house.history())[-1][:2] == (3, "rollback to version 1")
    desk.paper.write(E9)
    await house.pass_s(2)
    assert [d.vm_max for d in house.desks] == [9, 9, 9]


async def test_rollback_that_cannot_be(house: House) -> None:
    """A version that is not there, or that has no place for a cluster with jobs."""
    desk, maker = house.start(MINIMAL), Maker()
    await house.pass_s(1)
    desk.paper.write(TWO)
    await house.pass_s(1)
    await put(house.store, submitted(maker.job("waits", cluster="2xl4")))
    with pytest.raises(ConfigError, match="1 job"):
        await desk.live.rollback(1, "ada", ADA)
    with pytest.raises(NotFound):
        await desk.live.rollback(7, "ada", ADA)
    assert len(await house.history()) == 2


async def test_judging_changes_nothing(house: House) -> None:
    """What a document would change is told, and why it would be refused."""
    desk = house.start(TWO)
    await house.pass_s(1)
    await put(house.store, submitted(Maker().job("waits", cluster="2xl4")))
    found = await desk.live.judge(dict(Reader({}).file(E6.encode(), "f").document), "f")
    assert "- clusters.2xl4" in found.diff
    assert "clusters.1xl4.vm_max: 3 → 6" in found.diff
    assert "1 job" in str(found.faults[0])
    moved = Reader({}).file((TWO + "api: {port: 9}\n").encode(), "f").document
    assert "api.port" in str((await desk.live.judge(dict(moved), "f")).faults[0])
    bad = await desk.live.judge({"nonsense": 1}, "f")
    assert any("nonsense" in str(fault) for fault in bad.faults)
    assert len(await house.history()) == 1


async def test_many_edits_at_once(house: House) -> None:
    """Replicas with different new files at the same moment: each is recorded once, one after the
    other, and all replicas end with the same."""
    desks = [house.start(MINIMAL) for _ in range(4)]
    await house.pass_s(2)
    for n, desk in enumerate(desks):
        desk.paper.write(MINIMAL.replace("vm_max: 3", f"vm_max: {10 + n}"))
    for _ in range(8):
        await asyncio.gather(*(desk.live.look() for desk in desks))
        house.clock.passed_s += 0.25
    assert [row[0] for row in await house.history()] == [1, 2, 3, 4, 5]
    assert len({desk.vm_max for desk in desks}) == 1


async def test_while_the_database_is_away(house: House) -> None:
    """Nothing is applied that could not be recorded; the edit is taken up when it answers."""
    desk = house.start(MINIMAL)
    await house.pass_s(1)
    house.store.down = True
    desk.paper.write(E6)
    for _ in range(4):
        with pytest.raises(StoreDown):
            await house.pass_s(ASK_S)
        house.clock.passed_s += ASK_S
    assert desk.vm_max == 3
    house.store.down = False
    await house.pass_s(1)
    assert desk.vm_max == 6


async def test_an_alert_stands_as_long_as_it_is_true(house: House) -> None:
    """Another replica with a good file at the same path clears it at its start; a replica that
    still has the bad one raises it again."""
    bad = house.start(MINIMAL)
    await house.pass_s(1)
    bad.paper.write(TYPO)
    await house.pass_s(1)
    house.start(MINIMAL)
    await house.pass_s(1)
    assert await house.alerts() == []
    await house.pass_s(REPEAT_S)
    assert [kind for kind, _ in await house.alerts()] == ["config_refused"]


async def test_a_version_that_is_not_understood(house: House) -> None:
    """Recorded by newer software: a replica that cannot read it keeps what it has and says so; one
    that never had anything does not lead."""
    desk = house.start(MINIMAL)
    await house.pass_s(1)
    newest = await house.versions.newest()
    assert newest is not None
    strange = {**newest.document, "of_the_future": 1}
    row = type(newest)(2, newest.at, "newer", "f", "digest", strange, ())
    assert await house.versions.record(row, ())
    await house.pass_s(ASK_S + 0.25)
    assert desk.vm_max == 3
    assert [kind for kind, _ in await house.alerts()] == ["config_not_adopted"]
    late = house.start(E6)
    await house.pass_s(2)
    assert not late.live.synced.is_set()


async def test_a_new_leader_asks_first(house: House) -> None:
    """A replica that stood still has missed an edit: it knows it before it leads."""
    desk, still = house.start(MINIMAL), house.start(MINIMAL)
    await house.pass_s(1)
    house.desks.remove(still)
    desk.paper.write(E6)
    await house.pass_s(1)
    assert still.vm_max == 3
    await still.live.catch_up()
    assert still.vm_max == 6
