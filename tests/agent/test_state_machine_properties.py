"""Whatever comes, in whatever order: what the agent's machine never does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.events import (
    ControlReceived,
    Exit,
    Exited,
    HeartbeatsAnswered,
    Input,
    Progressed,
    PublishHeartbeats,
    ReclaimNotice,
    ShutDown,
    Signal,
    SignalGroup,
    Started,
    StartFailed,
    StartProcess,
    Tick,
)
from agent.heartbeat_queue import FINAL_WORDS
from agent.state_machine import AgentMachine
from core.messages import Heartbeat, Progress, StartJob
from core.timers import Timers
from tests.agent.orders import ME, drain, go_on, start, stop

LEASES = st.sampled_from(["l1", "l2", "l3", "l4"])
SLOTS = st.sets(st.integers(0, 3), min_size=1, max_size=3).map(lambda s: tuple(sorted(s)))
RARELY = st.sampled_from([*[""] * 20, "preempt", "drain"])
TIMERS = replace(Timers(), frozen_max_s=200.0, agent_idle_off_s=10_000.0)


class World(RuleBasedStateMachine):
    """Random control messages, answers, exits and time; a model of the processes beside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.machine = AgentMachine(ME, TIMERS, 4, self.now)
        self.alive: dict[str, StartJob] = {}
        self.ever_started: set[str] = set()
        self.stopped: set[str] = set()
        self.told_to_end: set[str] = set()
        self.preempted = False
        self.continued: str | None = None
        self.in_flight: PublishHeartbeats | None = None
        self.final: dict[str, set[str]] = {}
        self.last_seq_sent: dict[str, int] = {}
        self.confirmed_send_at = 0.0
        self.sent_at = 0.0
        self.over = False

    def feed(self, event: Input) -> None:
        for output in self.machine.handle(event, self.now):
            assert not self.over, "nothing comes after Exit"
            match output:
                case StartProcess(order):
                    self.begin(order)
                case SignalGroup(lease_id, signal):
                    self.tell(lease_id, signal)
                case PublishHeartbeats():
                    self.send(output)
                case Exit():
                    self.over = True

    def begin(self, order: StartJob) -> None:
        assert order.lease_id not in self.ever_started, "a lease runs at most once"
        taken = {slot for other in self.alive.values() for slot in other.slots}
        assert not taken & set(order.slots), "one slot, one process"
        self.alive[order.lease_id] = order
        self.ever_started.add(order.lease_id)

    def tell(self, lease_id: str, signal: Signal) -> None:
        assert lease_id in self.alive, "signals go to living processes"
        if signal is Signal.STOP:
            self.stopped.add(lease_id)
        if signal in (Signal.TERM, Signal.KILL):
            self.told_to_end.add(lease_id)
        if signal is Signal.CONT:
            assert self.continued == lease_id, "only `continue` thaws"
            self.stopped.discard(lease_id)

    def send(self, send: PublishHeartbeats) -> None:
        assert self.in_flight is None, "one send at a time"
        self.in_flight = send
        self.sent_at = self.now
        for heartbeat in send.heartbeats:
            self.check(heartbeat)

    def check(self, heartbeat: Heartbeat) -> None:
        assert (heartbeat.vm_name, heartbeat.boot_nonce, heartbeat.instance_id) == (
            ME.vm_name,
            ME.boot_nonce,
            ME.instance_id,
        )
        if heartbeat.status in FINAL_WORDS and heartbeat.lease_id:
            assert heartbeat.lease_id, "final words carry their lease"
            assert heartbeat.attempt is not None, "final words carry their attempt"
            assert heartbeat.lease_id not in self.alive, (
                "nobody speaks the last word of an active job"
            )
            self.final.setdefault(heartbeat.lease_id, set()).add(str(heartbeat.status))
        if heartbeat.status in ("READY", "DRAINED"):
            assert not self.alive, "who has work is not idle, however many of its jobs have ended"
        if heartbeat.status == "RUNNING":
            assert heartbeat.lease_id in self.ever_started

    @initialize()
    def boot(self) -> None:
        self.feed(Tick())

    @rule(lease_id=LEASES, slots=SLOTS)
    def hear_start(self, lease_id: str, slots: tuple[int, ...]) -> None:
        self.feed(ControlReceived(start(lease_id, slots)))

    @rule(lease_id=LEASES, grace_s=st.sampled_from([0.0, 5.0, 60.0]))
    def hear_stop(self, lease_id: str, grace_s: float) -> None:
        self.feed(ControlReceived(stop(lease_id, grace_s)))

    @rule(lease_id=LEASES)
    def hear_continue(self, lease_id: str) -> None:
        self.continued = lease_id
        self.feed(ControlReceived(go_on(lease_id)))
        self.continued = None

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 9.0, 30.0, 61.0, 250.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.feed(Tick())

    @rule(works=st.booleans())
    def answer(self, works: bool) -> None:
        send, self.in_flight = self.in_flight, None
        if send is not None and works:
            self.confirmed_send_at = self.sent_at
            self.feed(HeartbeatsAnswered(send.number, confirmed=True))
        elif send is not None:
            self.feed(HeartbeatsAnswered(send.number, confirmed=False))

    @rule(lease_id=LEASES)
    def process_runs(self, lease_id: str) -> None:
        if lease_id in self.alive:
            self.feed(Started(lease_id))
            self.feed(Progressed(lease_id, Progress(1.0), 1.0))

    @rule(lease_id=LEASES, exit_code=st.sampled_from([0, 1, 137]), never=st.booleans())
    def process_ends(self, lease_id: str, exit_code: int, never: bool) -> None:
        if self.alive.pop(lease_id, None) is None:
            return
        self.stopped.discard(lease_id)
        kind = StartFailed if never else Exited
        self.feed(kind(lease_id, exit_code, f"exit code {exit_code}"))

    @rule(notice=RARELY)
    def no_more_work(self, notice: str) -> None:
        if notice == "preempt":
            self.preempted = True
            self.feed(ReclaimNotice())
        elif notice == "drain":
            self.feed(ControlReceived(drain()))

    @invariant()
    def machine_and_processes_agree(self) -> None:
        if not self.over:
            assert self.machine.jobs.keys() == self.alive.keys()

    @invariant()
    def notice_reaches_every_job(self) -> None:
        if self.preempted:
            assert self.alive.keys() <= self.told_to_end

    @invariant()
    def one_kind_of_end(self) -> None:
        assert all(len(kinds) == 1 for kinds in self.final.values())

    @invariant()
    def silence_freezes(self) -> None:
        if self.now - self.confirmed_send_at >= TIMERS.self_stop_after_s and not self.over:
            killed = {lease for lease, work in self.machine.jobs.items() if work.killed}
            assert self.alive.keys() - killed <= self.stopped

    def teardown(self) -> None:
        """After everything ends and the bus works, every lease that ran has its one last word."""
        for lease_id in list(self.alive):
            self.process_ends(lease_id, 0, never=False)
        for _ in range(20):
            self.answer(works=True)
            self.now += 1.0
            self.feed(Tick())
        if not self.over:
            assert self.ever_started <= self.final.keys()
        self.feed(ShutDown("SIGTERM"))
        self.answer(works=True)
        assert self.over


World.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMachine = World.TestCase
