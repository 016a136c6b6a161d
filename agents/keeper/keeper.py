"""Keeps the node as its assignment says: looks, decides, records, acts; again and again, and after every change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from agents.contract import AssignedInstance, Assignment
from agents.fits import GpuRules, Shortfall
from agents.host import clocks
from agents.keeper.copies import NodeCopy, Stage, largest_batch, same_process_serves
from agents.keeper.decide import CopyDecision, HeldStart, NodeConstraints, WantedInstance, decide
from agents.keeper.drivers import NodeDrivers
from agents.keeper.failures import Failures
from agents.keeper.filler import Filler
from agents.keeper.ledger import CopyLedger
from agents.keeper.ports import free_port
from agents.keeper.room import over_full
from agents.keeper.routing import GatewayRoutes, routes_of
from agents.keeper.step_runner import StepRunner
from agents.keeper.steps import STEP_SECONDS, Steps
from agents.runtime import Running
from agents.seams.device import GpuDevice

QUIET_SECONDS = 10.0  # that adopted copies have to be verified in
CALM_SECONDS = 1.0  # between two looks when nothing changes
DRAIN_GRACE_SECONDS = 5.0  # beyond the template's own, while the gateway still sees open requests

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rest of the agent knows of the node, for the keeper to act on."""

    gpus: Mapping[int, GpuDevice] = field(default_factory=dict)  # by the index that assignments use
    fenced: Mapping[str, str] = field(default_factory=dict)  # UUID: why nothing is started there
    draining: frozenset[str] = frozenset()  # GPUs that are to be empty
    stopped_jobs: frozenset[str] = frozenset()  # they have made room for services
    room_gib: Mapping[str, float] = field(default_factory=dict)  # where it is not the whole of a GPU's memory


class Keeper:
    """One thread ticks; steps that may take long run beside it, one at a time for each copy."""

    def __init__(
        self,
        ledger: CopyLedger,
        hands: NodeDrivers,
        board: GatewayRoutes,
        filler: Filler,
        incarnation: int,
        host: str = "127.0.0.1",
        clock: Callable[[], float] = clocks.seconds,
        workers: int = 4,
    ) -> None:
        self._ledger = ledger
        self._hands = hands
        self._board = board
        self.filler = filler
        self._incarnation = incarnation
        self._host = host
        self._clock = clock
        self._wake = threading.Event()
        self._crew = StepRunner(workers, self._wake.set)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._assignment: Assignment | None = None
        self._situation = Situation()
        self._contact = False
        self._failures = Failures()
        self._established: dict[str, AssignedInstance] = {}
        self._steps = Steps(ledger, hands, filler, self._failures, self._crew, clock, self._wake.set)
        self._held: tuple[HeldStart, ...] = ()
        self._counter = 0
        self._quiet_until = float("-inf")
        self.handed_over = 0

    # What the rest of the agent says and asks.

    def offer(self, assignment: Assignment) -> None:
        """What the node shall run from now on; it is on disk already."""
        with self._lock:
            self._assignment = assignment
        self._wake.set()

    def tell(self, situation: Situation) -> None:
        with self._lock:
            changed, self._situation = situation != self._situation, situation
        if changed:
            self._wake.set()

    def hear(self, contact: bool) -> None:
        """Whether the control plane answers; until it first has, nothing is changed."""
        changed, self._contact = contact != self._contact, contact
        if changed:
            self._wake.set()

    def copies(self) -> tuple[NodeCopy, ...]:
        """Every copy that is not gone."""
        return self._ledger.copies()

    @property
    def held(self) -> tuple[HeldStart, ...]:
        return self._held

    @property
    def recycled(self) -> Mapping[str, str]:
        return dict(self._steps.recycled)

    @property
    def gateway_away(self) -> str:
        return self._board.away

    def in_force(self, copy: NodeCopy) -> bool:
        """Whether the gateway sends requests to the copy now."""
        state = self._board.in_force(copy)
        return state is not None and state.ready

    def recover(self, last_seen: datetime) -> tuple[Running, ...]:
        """After a start: what ended while nobody looked is said to have; what runs and is in no journal is returned."""
        for copy in self.copies():
            if copy.running is not None and not self._hands.runtime.alive(copy.running):
                ended = max(last_seen, copy.started_at or last_seen)
                gone = msgspec.structs.replace(copy, ended_at=ended, evidence="restart")
                self._ledger.record(gone.at(Stage.ENDING, self._clock(), "exited"))
        found = self._hands.runtime.find()
        by_id = {running.copy: running for running in found}
        for copy in self.copies():
            if copy.stage is Stage.STARTING and copy.id in by_id:  # we died between its start and its record
                started = msgspec.structs.replace(copy, running=by_id[copy.id])
                self._ledger.record(started.at(Stage.VERIFYING, self._clock()))
        known = {copy.id for copy in self.copies()}
        return tuple(running for running in found if running.copy not in known)

    def take_in(self, copy: NodeCopy) -> None:
        """A copy that runs and was in no journal; it is verified like any other, and keeps its route meanwhile."""
        self._ledger.record(copy)
        self._quiet_until = self._clock() + QUIET_SECONDS
        self._wake.set()

    def recycle(self, gpu: str, reason: str) -> None:
        """Empty a GPU and start its MPS daemon anew: nothing may run there without a limit."""
        self._steps.recycle(gpu, reason)

    def run(self) -> None:
        """Until `stop`. What runs goes on running."""
        while not self._stopping.is_set():
            try:
                pause = self.tick()
            except OSError as error:  # the journal's disk: nothing is done that was not recorded
                log.error("nothing can be recorded, so nothing is changed: %s", error)
                pause = CALM_SECONDS
            except Exception:
                log.exception("one look at what is wanted and what is there failed")
                pause = CALM_SECONDS
            self._wake.wait(pause)
            self._wake.clear()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """Give up the journal, once `run` has ended; what a step has done since is recorded yet."""
        self._crew.stop()
        self._crew.take_results()
        self._board.close()
        self._ledger.close()

    def tick(self) -> float:
        """Look once, decide once, and set off what is next; how long nothing needs to be looked at again."""
        self._crew.take_results()
        now = self._clock()
        with self._lock:
            assignment, situation = self._assignment, self._situation
        self._see_ends(now)
        if assignment is not None and situation.gpus:
            self._act(assignment, situation, now)
        if now >= self._quiet_until or not self._verifies_adopted():
            self._board.bring_up_to_date(routes_of(self.copies(), self._host, self._steps.freed))
        self._pass_gates(now)
        self._steps.set_off({gpu.uuid: gpu for gpu in situation.gpus.values()}, now, self._may_start)
        moving = any(copy.stage is not Stage.READY for copy in self.copies())
        return STEP_SECONDS / 2 if moving else CALM_SECONDS

    def _may_start(self, copy: NodeCopy) -> bool:
        """Also what was decided to be started is not, while nobody says that it is still wanted (I4)."""
        return self._contact or self._established.get(copy.instance) == copy.wanted

    def _verifies_adopted(self) -> bool:
        """The gateway has their routes of before: to declare ours without them would take them away."""
        return any(copy.stage in (Stage.VERIFYING, Stage.WARMING) for copy in self.copies())

    # Deciding.

    def _act(self, assignment: Assignment, situation: Situation, now: float) -> None:
        wanted = _wanted(assignment, situation)
        rules = GpuRules.of(assignment)
        copies = self.copies()
        refused = self.filler.refused([one.instance for one in wanted])
        node = NodeConstraints(
            memory_gib={gpu.uuid: gpu.memory_gib for gpu in situation.gpus.values()} | dict(situation.room_gib),
            fenced=situation.fenced,
            recycled=self._steps.recycled,
            refused=refused,
            resting=self._failures.resting([one.instance for one in wanted], now),
            stopped_jobs=situation.stopped_jobs,
            contact=self._contact,
            established=self._still_established(wanted),
        )
        self._follow(wanted, copies)
        decision = decide(wanted, copies, node, rules)
        for going in decision.take_down:
            copy = self._ledger.get(going.copy)
            if copy is None:
                continue
            stage = Stage.DRAINING if copy.served and copy.stage in (Stage.ROUTING, Stage.READY) else Stage.ENDING
            if going.reason == "replaced":
                self.handed_over += 1
            self._ledger.record(copy.at(stage, now, going.reason))
        for start in decision.start:
            self._begin(start.wanted, now)
        self._end_late_handovers(assignment.handover_seconds, now)
        self._held = self._all_held(decision)

    def _still_established(self, wanted: Sequence[WantedInstance]) -> Collection[str]:
        """Instances that have been ready here just as they are wanted now."""
        as_wanted = {one.instance.id: one.instance for one in wanted}
        self._established = {
            name: instance for name, instance in self._established.items() if as_wanted.get(name) == instance
        }
        return self._established.keys()

    def _follow(self, wanted: Sequence[WantedInstance], copies: Collection[NodeCopy]) -> None:
        """A copy whose process can become what is wanted now is wanted so from now on."""
        by_id = {one.instance.id: one for one in wanted}
        for copy in copies:
            one = by_id.get(copy.instance)
            if one is None or one.gpu != copy.gpu or one.instance == copy.wanted or not copy.rising:
                continue
            if same_process_serves(copy, one.instance):
                self._ledger.record(msgspec.structs.replace(copy, wanted=one.instance))

    def _begin(self, wanted: WantedInstance, now: float) -> None:
        self._counter += 1
        taken = {port for copy in self.copies() for port in (copy.port, copy.metrics_port)}
        port = free_port(self._host, taken)
        copy = NodeCopy(
            id=f"{wanted.instance.id}.{self._incarnation:x}.{self._counter:x}",
            wanted=wanted.instance,
            gpu=wanted.gpu,
            port=port,
            metrics_port=free_port(self._host, {*taken, port}),
            largest_batch=largest_batch(wanted.instance),
            born=now,
            since=now,
        )
        self._ledger.record(copy)

    def _end_late_handovers(self, handover_seconds: float, now: float) -> None:
        """SM limits may pass 100 % for so long and no longer, unless the new copy may already have requests."""
        copies = self.copies()
        for gpu in {copy.gpu for copy in copies if copy.rising and copy.stage not in (Stage.ROUTING, Stage.READY)}:
            there = [copy for copy in copies if copy.gpu == gpu]
            if not over_full(there):
                continue
            for copy in there:
                new = copy.rising and copy.stage not in (Stage.ROUTING, Stage.READY)
                if new and now - copy.born > handover_seconds:
                    self._steps.fall(copy, "handover_timeout", f"not warm within {handover_seconds:g} s", now)

    def _all_held(self, decision: CopyDecision) -> tuple[HeldStart, ...]:
        waiting = [copy for copy in self.copies() if copy.stage in (Stage.ROUTING, Stage.DRAINING)]
        away = self._board.away
        return decision.held + tuple(
            HeldStart(copy.instance, Shortfall("gateway_away", f"the gateway does not acknowledge: {away}"[:500]))
            for copy in waiting
            if away
        )

    # Following each copy.

    def _see_ends(self, now: float) -> None:
        """A process that ended by itself."""
        for copy in self.copies():
            if copy.stage not in (Stage.READY, Stage.ROUTING, Stage.DRAINING) or copy.running is None:
                continue
            if copy.stage is Stage.READY:
                self._established[copy.instance] = copy.wanted
            if not self._hands.runtime.alive(copy.running):
                expected = copy.stage is Stage.DRAINING
                reason = "" if expected else "exited"
                if not expected:
                    tail = self._hands.runtime.log_tail(copy.id).strip().replace("\n", " | ")[-300:]
                    self._failures.note(copy.wanted, "exited", f"it ended by itself: {tail}", now - copy.since, now)
                    log.warning("%s ended by itself: %s", copy.id, tail)
                self._ledger.record(copy.at(Stage.ENDING, now, reason))

    def _pass_gates(self, now: float) -> None:
        """What the gateway has acknowledged lets copies go on."""
        for copy in self.copies():
            state = self._board.in_force(copy)
            if copy.stage is Stage.ROUTING and state is not None and state.ready:
                self._ledger.record(copy.at(Stage.READY, now))
                self._wake.set()
            elif copy.stage is Stage.DRAINING:
                filled = self.filler.filled(copy)
                patience = (filled.drain_seconds if filled else 0.0) + DRAIN_GRACE_SECONDS
                # Without the gateway's word nobody knows whether requests still come: it stays (I3).
                if self._board.drained(copy) or (not self._board.away and now - copy.since > patience):
                    self._ledger.record(copy.at(Stage.ENDING, now))
                    self._wake.set()
            elif (
                copy.stage is Stage.ENDING
                and copy.id in self._steps.freed
                and (not copy.served or self._board.forgotten(copy))
            ):
                self._ledger.record(copy.at(Stage.GONE, now))
                self._steps.forget(copy)


def _wanted(assignment: Assignment, situation: Situation) -> list[WantedInstance]:
    """What the assignment names, on the GPUs that its indexes mean; nothing where a GPU is to be emptied."""
    found = []
    for instance in assignment.instances:
        gpu = situation.gpus.get(instance.gpu)
        if gpu is None or gpu.uuid not in situation.draining:
            found.append(WantedInstance(instance, gpu.uuid if gpu else ""))
    return found
