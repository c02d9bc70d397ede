"""The supervisor on small stand-in processes: ready lines, deaths, and that nothing outlives it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from cli.local.config import vm_cap
from cli.local.lock import AlreadyUp, Lock, end_leftovers, holder, leftovers
from cli.local.process import Child, ChildFailed, ProcessSpec, start
from cli.local.stack import Options, Stack, ending, port_is_free
from cli.paths import ROOT, Home, Running, alive

if TYPE_CHECKING:
    from tests.cli.conftest import Ended

pytestmark = pytest.mark.slow
Zen = Callable[..., "Ended"]
DEADLINE_S = 20.0

SERVE = """
import json, os, select, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("some noise first", flush=True)
print(json.dumps({"event": "ready", "pid": os.getpid(), **json.loads(os.environ["FACTS"])}),
      flush=True)
fd = int(sys.argv[sys.argv.index("--parent-fd") + 1])
while True:
    if select.select([fd], [], [], 60)[0] and not os.read(fd, 1):
        sys.exit(0)
"""


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits for a condition of another process, which has no event to wait on."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def program(tmp_path: Path, code: str, **changes: object) -> ProcessSpec:
    made = {
        "name": "part",
        "argv": (sys.executable, "-c", textwrap.dedent(code), "--parent-fd", "{parent_fd}"),
        "environment": {**os.environ, "FACTS": "{}"},
        "log": tmp_path / "part.log",
        "cwd": tmp_path,
    }
    return ProcessSpec(**{**made, **changes})  # type: ignore[arg-type]


# --- one child ----------------------------------------------------------------------------------


async def test_ready_line_is_found_among_noise(tmp_path: Path) -> None:
    """Lines that are not the ready event are passed over; the facts in it are kept."""
    child = await start(program(tmp_path, SERVE))
    assert child.ready["pid"] == child.pid
    await child.stop(5)
    assert not alive(child.pid)


async def test_death_at_start_shows_the_last_words(tmp_path: Path) -> None:
    """The error has the exit code, the log's place and its last lines."""
    code = "import sys; print('port is taken', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ChildFailed) as caught:
        await start(program(tmp_path, code))
    assert "exit code 3" in str(caught.value)
    assert "port is taken" in str(caught.value)
    assert str(tmp_path / "part.log") in str(caught.value)


async def test_failed_event_is_the_error(tmp_path: Path) -> None:
    """A child that says why it failed is quoted."""
    code = 'print(\'{"event": "failed", "error": "no room"}\', flush=True)'
    with pytest.raises(ChildFailed, match="did not start: no room"):
        await start(program(tmp_path, code))


async def test_silent_child_is_given_up(tmp_path: Path) -> None:
    """The wait has an end, and what was started is ended with it."""
    before = set(psutil.Process().children())
    with pytest.raises(ChildFailed, match=r"not ready within 0\.5 s"):
        await start(program(tmp_path, "import time; time.sleep(99)", ready_s=0.5))
    assert set(psutil.Process().children()) <= before


async def test_missing_program_is_an_error_in_words(tmp_path: Path) -> None:
    """No such program: named, no traceback."""
    with pytest.raises(ChildFailed, match="part cannot be started"):
        await start(program(tmp_path, "", argv=("/no/such/program",)))


async def test_stubborn_child_is_killed_with_its_own(tmp_path: Path) -> None:
    """A process that ignores SIGTERM is killed after the limit, together with what it started."""
    code = """
        import json, signal, subprocess, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        inner = subprocess.Popen(["sleep", "99"])
        print(json.dumps({"event": "ready", "inner": inner.pid}), flush=True)
        time.sleep(99)
    """
    child = await start(program(tmp_path, code))
    await asyncio.wait_for(child.stop(0.3), DEADLINE_S)
    assert not alive(child.pid)
    until(lambda: not alive(child.ready["inner"]), "the grandchild outlived its session")


async def test_chatty_child_is_not_stopped_by_a_full_pipe(tmp_path: Path) -> None:
    """What it prints after the ready line goes to its log, however much."""
    code = """
        import json, sys
        print(json.dumps({"event": "ready"}), flush=True)
        sys.stdout.write("x" * 300_000)
        sys.stdout.flush()
    """
    child = await start(program(tmp_path, code))
    assert await asyncio.wait_for(child.process.wait(), DEADLINE_S) == 0


# --- the whole stack, of stand-ins --------------------------------------------------------------


@pytest.fixture
def stand_ins(tmp_path: Path) -> Home:
    """Every part of the stack is a small process that says what the real one says."""
    fake = tmp_path / "python"
    serve = tmp_path / "serve.py"
    serve.write_text(SERVE)
    facts = {
        "db.embedded.server": {"url": "postgresql://zen@/postgres?host=/tmp/x"},
        "localbus": {"grpc": "127.0.0.1:4001", "rest": "127.0.0.1:4002"},
        "sim": {"compute": "http://127.0.0.1:4003"},
        "scheduler": {"api": "http://127.0.0.1:4004"},
    }
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    fake.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import json, os, sys
        words = sys.argv[1:]
        if words[:2] == ["-m", "cli"]:
            sys.exit(0)
        facts = json.load(open({str(tmp_path / "facts.json")!r}))
        if words[1] not in facts:
            sys.exit("gone")
        os.environ["FACTS"] = json.dumps(facts[words[1]])
        os.execv({sys.executable!r}, [{sys.executable!r}, {str(serve)!r}, *words])
        """)
    )
    fake.chmod(0o755)
    place = Home(tmp_path / "zen")
    place.make()
    return place


def stack_of(place: Home, told: list[tuple[str, str]], replicas: int = 1) -> Stack:
    options = Options(replicas=replicas, port=0)
    python = str(place.path.parent / "python")
    return Stack(place, options, vm_cap(10_000, 2), lambda *news: told.append(news), python)


async def test_stack_starts_writes_its_addresses_and_stops(stand_ins: Home) -> None:
    """run.json names every address and process; after stop() it is gone and so are they."""
    told: list[tuple[str, str]] = []
    stack = stack_of(stand_ins, told, replicas=2)
    running = await stack.start()
    assert stand_ins.read() == running
    assert running.api == "http://127.0.0.1:4004"
    assert (running.sim, running.bus) == ("http://127.0.0.1:4003", "127.0.0.1:4001")
    assert running.bus_rest == "http://127.0.0.1:4002"
    names = {"postgres", "bus", "cloud", "scheduler-1", "scheduler-2"}
    assert set(running.processes) == names
    assert all(alive(pid) for pid in running.processes.values())
    await stack.stop()
    assert not any(alive(pid) for pid in running.processes.values())
    assert stand_ins.read() is None
    stops = [text for kind, text in told if kind == "stopping"]
    assert stops == ["scheduler-1, scheduler-2", "cloud", "bus", "postgres"]


async def test_dead_part_is_started_again_where_it_was(stand_ins: Home) -> None:
    """A bus that is killed comes back with the ports that the others know."""
    told: list[tuple[str, str]] = []
    stack = stack_of(stand_ins, told)
    first = await stack.start()
    os.kill(first.processes["bus"], signal.SIGKILL)

    def back() -> bool:
        now = stand_ins.read()
        return now is not None and now.processes["bus"] != first.processes["bus"]

    await _until(back)
    again = stand_ins.read()
    assert again is not None
    words = _words(again.processes["bus"])
    assert words[words.index("--port") + 1] == "4001"
    assert words[words.index("--rest-port") + 1] == "4002"
    assert any("bus was killed by signal 9" in text for kind, text in told if kind == "died")
    await stack.stop()


async def test_database_that_moves_takes_the_schedulers_along(stand_ins: Home) -> None:
    """PostgreSQL may come back at another address: the schedulers are restarted with it."""
    stack = stack_of(stand_ins, [])
    first = await stack.start()
    os.kill(first.processes["postgres"], signal.SIGKILL)

    def back() -> bool:
        now = stand_ins.read()
        return now is not None and all(
            now.processes[name] != first.processes[name] for name in ("postgres", "scheduler")
        )

    await _until(back)
    await stack.stop()


async def test_scheduler_that_starts_while_the_database_moves(
    stand_ins: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given the old address and is restarted once more with the new one."""
    stack = stack_of(stand_ins, [])
    first = await stack.start()
    begin = stack._begin

    async def overtaken(program: ProcessSpec) -> Child:
        if program.name == "scheduler":
            monkeypatch.setattr(stack, "_begin", begin)
            await stack._move_database("postgresql://moved")
        return await begin(program)

    monkeypatch.setattr(stack, "_begin", overtaken)
    os.kill(first.processes["scheduler"], signal.SIGKILL)

    def knows() -> bool:
        now = stand_ins.read()
        pid = now.processes["scheduler"] if now else 0
        try:
            return b"DATABASE_URL=postgresql://moved" in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False  # the one with the old address is being ended

    await _until(knows)
    await stack.stop()


async def test_failed_start_leaves_nothing(stand_ins: Home) -> None:
    """One part that does not start is named, and the others are stopped."""
    facts = json.loads((stand_ins.path.parent / "facts.json").read_text())
    del facts["scheduler"]
    (stand_ins.path.parent / "facts.json").write_text(json.dumps(facts))
    stack = stack_of(stand_ins, [])
    with pytest.raises(BaseExceptionGroup) as caught:
        await stack.start()
    assert caught.group_contains(ChildFailed, match="scheduler ended with exit code 1")
    children = dict(stack._children)
    assert set(children) == {"postgres", "bus", "cloud"}
    await stack.stop()
    assert not any(alive(child.pid) for child in children.values())


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110  # another process writes the file
            await asyncio.sleep(0.01)


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


SUPERVISE = """
import asyncio, json, sys
from pathlib import Path
from cli.local.stack import Options, Stack
from cli.paths import Home
from cli.local.config import vm_cap
async def main():
    place = Home(Path(sys.argv[2]))
    stack = Stack(place, Options(port=0), vm_cap(1000, 1), print, sys.argv[1])
    running = await stack.start()
    print("RUNNING " + json.dumps(dict(running.processes)), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_kill_9_of_the_supervisor_leaves_nothing(stand_ins: Home, tmp_path: Path) -> None:
    """Every process of the stack ends by itself when the supervisor is killed."""
    argv = [sys.executable, "-c", SUPERVISE, str(tmp_path / "python"), str(stand_ins.path)]
    supervisor = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    line = next(line for line in supervisor.stdout if line.startswith("RUNNING "))
    processes = json.loads(line.removeprefix("RUNNING "))
    assert len(processes) == 4
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    until(lambda: not any(alive(pid) for pid in processes.values()), f"left: {processes}")


# --- lock, leftovers, down ----------------------------------------------------------------------


def test_one_stack_per_directory(tmp_path: Path) -> None:
    """A second lock is refused and told where the first is; the kernel frees a dead one's."""
    place = Home(tmp_path)
    place.make()
    lock = Lock(place)
    place.write(Running(os.getpid(), "http://127.0.0.1:8080", "", "", "", ""))
    assert holder(place) == os.getpid()
    with pytest.raises(AlreadyUp, match=r"its API is http://127.0.0.1:8080; stop it with"):
        Lock(place)
    lock.release()
    assert holder(place) is None
    Lock(place).release()


def test_only_marked_processes_are_leftovers(tmp_path: Path) -> None:
    """A number in an old run.json that belongs to a stranger by now is left alone."""
    place = Home(tmp_path)
    place.make()
    ours = subprocess.Popen(["sleep", "60"], env={**os.environ, "MARK": str(tmp_path)})
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        found = {"bus": ours.pid, "cloud": stranger.pid}
        place.write(Running(1, "", "", "", "", "", processes=found))
        until(lambda: leftovers(place, "MARK") == [ours.pid], "the marked process was not found")
        end_leftovers(place, "MARK")
        assert ours.wait(DEADLINE_S) == -signal.SIGTERM
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


HOLD = """
import sys
from pathlib import Path
from cli.local.lock import Lock
from cli.paths import Home
lock = Lock(Home(Path(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
"""


def test_down_stops_the_holder_and_is_idempotent(zen: Zen, home: Path) -> None:
    """SIGTERM to the holder of the lock, wait for it; again: nothing runs."""
    place = Home(home)
    place.make()
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdout is not None
    assert held.stdout.readline() == b"held\n"
    assert zen("up").code == 1
    ended = zen("down")
    assert (ended.code, ended.out) == (0, "stopped\n")
    assert held.wait(DEADLINE_S) == -signal.SIGTERM
    ended = zen("down")
    assert (ended.code, ended.out) == (0, "nothing runs\n")
    assert zen("down", "--json").json == {"stopped": False}
    held.communicate()


def test_up_says_where_the_first_one_is(zen: Zen, home: Path) -> None:
    """A second `zen up` for the same directory changes nothing: one line, exit code 1."""
    place = Home(home)
    place.make()
    lock = Lock(place)
    place.write(Running(os.getpid(), "http://127.0.0.1:8080", "", "", "", ""))
    for words in (("up",), ("up", "--detach")):
        ended = zen(*words)
        assert ended.code == 1
        assert "already runs" in ended.err
        assert ended.err.count("\n") == 1
    assert place.read() is not None
    lock.release()


def test_taken_port_is_noticed() -> None:
    """A port that somebody listens on is not free; it is when they have gone."""

    def left_free() -> bool:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            assert not port_is_free(port)
        return port_is_free(port)

    # The next one who asks for any port may get just this one: not three times in a row.
    assert any(left_free() for _ in range(3))


def test_endings_in_words() -> None:
    """Signals and exit codes are told apart."""
    assert ending(-9) == "was killed by signal 9"
    assert ending(3) == "ended with exit code 3"
