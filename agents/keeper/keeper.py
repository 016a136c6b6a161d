"""Keeps the node as its assignment demands: looks, decides, records and acts in a loop, and after every change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from agents.contract.assignments import Assignment
from agents.host.stopping import limit_stay_seconds
from agents.keeper.copies import AWAY, NodeCopy, Stage
from agents.keeper.decide import HeldStart
from agents.keeper.drivers import NodeDrivers
from agents.keeper.exits import EXITED, ExitVerdict, JobExits
from agents.keeper.failures import Failures
from agents.keeper.filler import Filler
from agents.keeper.ledger import CopyLedger
from agents.keeper.reconciling import Reconciler, Situation
from agents.keeper.routing import GatewayRoutes, list_routes
from agents.keeper.step_runner import StepRunner
from agents.keeper.steps import STEP_SECONDS, Steps
from agents.runtime import ExitUndecided, Running

VERIFY_SECONDS = 10.0  # in which adopted copies are verified before routes are declared
CALM_SECONDS = 1.0  # between two ticks when nothing changes
RUNNING = (Stage.READY, Stage.ROUTING, Stage.DRAINING, Stage.RETURNING, *AWAY)  # stages that an exit ends at once
DRAIN_GRACE_SECONDS = 5.0  # beyond the template's own, while the gateway still reports open requests

log = logging.getLogger(__name__)


class Keeper:
    """Ticks on one thread; steps that may take long run on workers, one at a time for each copy."""

    def __init__(
        self,
        ledger: CopyLedger,
        drivers: NodeDrivers,
        routes: GatewayRoutes,
        filler: Filler,
        incarnation: int,
        host: str,
        clock: Callable[[], float],
        workers: int,
        exits: JobExits | None,
    ) -> None:
        self._ledger = ledger
        self._drivers = drivers
        self._routes = routes
        self.filler = filler
        self._host = host
        self._clock = clock
        self._wake = threading.Event()
        self._runner = StepRunner(workers, self._wake.set)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._assignment: Assignment | None = None
        self._situation = Situation()
        self._contact = False
        self._failures = Failures()
        self._exits = exits or JobExits()
        self._steps = Steps(
            ledger, drivers, filler, self._failures, self._runner, clock, self._wake.set, self._exits, self._units_of
        )
        self._reconciler = Reconciler(ledger, filler, self._failures, self._steps, incarnation, host, self._exits)
        self._held: tuple[HeldStart, ...] = ()
        self._silent_until = float("-inf")

    # Called by the rest of the agent.

    def offer(self, assignment: Assignment) -> None:
        """Takes what the node shall run from now on; it is on disk already."""
        with self._lock:
            self._assignment = assignment
        self._wake.set()

    def update_situation(self, situation: Situation) -> None:
        """Takes the newest state of the node's devices."""
        with self._lock:
            changed, self._situation = situation != self._situation, situation
        if changed:
            self._wake.set()

    def set_contact(self, contact: bool) -> None:
        """Notes whether the control plane answers; before its first answer nothing is changed."""
        changed, self._contact = contact != self._contact, contact
        if changed:
            self._wake.set()

    def copies(self) -> tuple[NodeCopy, ...]:
        """Returns every copy that is not gone."""
        return self._ledger.copies()

    @property
    def held(self) -> tuple[HeldStart, ...]:
        """The instances held back now, with the reasons."""
        return self._held

    def list_logged_copies(self, instance: str) -> list[str]:
        """Returns the processes of an instance whose output is kept, the newest last."""
        gone = [ended.copy for ended in self._exits.ended if ended.instance == instance]
        here = sorted((copy for copy in self.copies() if copy.instance == instance), key=lambda copy: copy.born)
        return [*gone, *(copy.id for copy in here if copy.id not in gone)]

    def exit_code(self, instance: str) -> int:
        """Returns the exit code of a job's last process; -1 where there is none."""
        return self._exits.code(instance)

    def exits(self, instance: str) -> int:
        """Returns how many of a job's processes ended by themselves since the start."""
        return self._exits.count(instance)

    @property
    def handed_over(self) -> int:
        """The number of copies replaced since the start."""
        return self._reconciler.handed_over

    @property
    def recycled(self) -> Mapping[str, str]:
        """The GPUs that are being emptied so that their MPS daemon can be restarted, with the reasons."""
        return dict(self._steps.recycled)

    @property
    def gateway_away(self) -> str:
        """The reason why the gateway does not acknowledge routes; empty if it does."""
        return self._routes.away

    def in_force(self, copy: NodeCopy) -> bool:
        """Returns whether the gateway sends requests to the copy now."""
        state = self._routes.in_force(copy)
        return state is not None and state.ready

    def recover(self, last_seen: datetime) -> tuple[Running, ...]:
        """After a start, records copies that ended while no agent ran; returns processes that are in no journal."""
        for copy in self.copies():
            if copy.running is not None and not self._drivers.runtime.alive(copy.running):
                ended = max(last_seen, copy.started_at or last_seen)
                gone = msgspec.structs.replace(copy, ended_at=ended, evidence="restart")
                gone = copy if copy.ended_at is not None else gone  # in host memory it held nothing since
                self._ledger.record(gone.at(Stage.ENDING, self._clock(), "exited"))
        found = self._drivers.runtime.find()
        by_id = {running.copy: running for running in found}
        for copy in self.copies():
            if copy.stage is Stage.STARTING and copy.id in by_id:  # killed between its start and the record of it
                started = msgspec.structs.replace(copy, running=by_id[copy.id])
                self._ledger.record(started.at(Stage.VERIFYING, self._clock()))
        known = {copy.id for copy in self.copies()}
        return tuple(running for running in found if running.copy not in known)

    def take_in(self, copy: NodeCopy) -> None:
        """Adopts a running copy that was in no journal. It is verified like any other and keeps its route meanwhile."""
        self._ledger.record(copy)
        self._silent_until = self._clock() + VERIFY_SECONDS
        self._wake.set()

    def recycle(self, gpu: str, reason: str) -> None:
        """Empties a GPU and restarts its MPS daemon, so that nothing runs there without a limit."""
        self._steps.recycle(gpu, reason)

    def run(self) -> None:
        """Ticks until `stop`. Copies go on running."""
        while not self._stopping.is_set():
            try:
                pause = self.tick()
            except OSError as error:  # the journal's disk: nothing is done that was not recorded
                log.error("the journal cannot be written, so nothing is changed: %s", error)
                pause = CALM_SECONDS
            except Exception:
                log.exception("a tick of the keeper failed")
                pause = CALM_SECONDS
            self._wake.wait(pause)
            self._wake.clear()

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """Closes the journal once `run` has ended, after recording the results of steps that were under way."""
        self._runner.stop()
        self._runner.take_results()
        self._routes.close()
        self._ledger.close()

    def tick(self) -> float:
        """Looks and decides once, and starts what is due next; returns the seconds until the next tick is needed."""
        self._runner.take_results()
        now = self._clock()
        with self._lock:
            assignment, situation = self._assignment, self._situation
        self._note_exits(now)
        self._note_called_away(now)
        if assignment is not None and situation.gpus:
            decided = self._reconciler.reconcile(assignment, situation, self._contact, now)
            lacking = self._steps.adapters.list_failing(self.copies())
            self._held = decided + self._reconciler.held_by_gateway(self._routes) + lacking
        if now >= self._silent_until or not self._verifies_adopted():
            self._routes.bring_up_to_date(list_routes(self.copies(), self._host, self.filler.paths, self._steps.freed))
        self._pass_gates(now)
        self._steps.set_off({gpu.uuid: gpu for gpu in situation.gpus.values()}, now, self._may_start)
        moving = any(copy.stage not in (Stage.READY, Stage.SWAPPED) for copy in self.copies())
        return STEP_SECONDS / 2 if moving else CALM_SECONDS

    def _may_start(self, copy: NodeCopy) -> bool:
        """Returns whether a copy may start: without contact only one of an instance that was ready here before (I4)."""
        return self._contact or self._reconciler.is_established(copy)

    def _verifies_adopted(self) -> bool:
        """Returns whether copies are still verified; until they are, the gateway keeps the routes that it has."""
        return any(copy.stage in (Stage.VERIFYING, Stage.WARMING) for copy in self.copies())

    def _note_exits(self, now: float) -> None:
        """Records processes that exited by themselves."""
        for copy in self.copies():
            if copy.stage not in RUNNING or copy.running is None:
                continue
            if copy.stage is Stage.READY:
                self._reconciler.establish(copy)
            if not self._drivers.runtime.alive(copy.running):
                expected = copy.stage is Stage.DRAINING
                reason = "" if expected else EXITED
                try:
                    is_over = bool(copy.wanted.job) and self._steps.note_job_exit(copy) is not ExitVerdict.AGAIN
                except ExitUndecided:
                    continue
                if not expected and not is_over:
                    tail = self._drivers.runtime.log_tail(copy.id).strip().replace("\n", " | ")[-300:]
                    ready = float("inf") if self._exits.has_progressed(copy.instance) else now - copy.since
                    self._failures.note(copy.wanted, EXITED, f"it exited by itself: {tail}", ready, now)
                    log.warning("%s exited by itself: %s", copy.id, tail)
                self._ledger.record(copy.at(Stage.ENDING, now, reason))

    def _note_called_away(self, now: float) -> None:
        """Records which copies somebody else ends, so that a successor starts while they still serve."""
        called = self._drivers.runtime.find_called_away()
        for copy in self.copies() if called else ():
            if copy.id not in called:
                continue
            self._steps.withdraw(copy, now)
            if copy.rising:
                log.warning("%s is ended by others than gpuwright; another copy takes its place", copy.id)
                filled = self.filler.filled(copy)
                stays = limit_stay_seconds(filled.drain_seconds if filled else 0.0, called[copy.id])
                self._ledger.record(msgspec.structs.replace(copy, stays_until=now + stays))

    def _units_of(self, copy: NodeCopy) -> float:
        """Returns a job's units as it last reported them: in its file, or by a metric."""
        files = self.filler.job_files(copy.wanted)
        written = files.read() if files else None
        return max(written.units if written else 0.0, self._exits.metered_units(copy.id))

    def _pass_gates(self, now: float) -> None:
        """Moves copies on once the gateway has acknowledged what they wait for."""
        for copy in self.copies():
            state = self._routes.in_force(copy)
            if copy.stage is Stage.ROUTING and state is not None and state.ready:
                self._ledger.record(copy.at(Stage.READY, now))
                self._wake.set()
            elif copy.stage is Stage.DRAINING:
                filled = self.filler.filled(copy)
                patience = (filled.drain_seconds if filled else 0.0) + DRAIN_GRACE_SECONDS
                # Without the gateway's acknowledgement requests may still come, so the copy stays (I3).
                if self._routes.drained(copy) or (self._routes.closed(copy) and now - copy.since > patience):
                    self._ledger.record(copy.at(Stage.ENDING, now))
                    self._wake.set()
            elif (
                copy.stage is Stage.ENDING
                and copy.id in self._steps.freed
                and (not copy.served or self._routes.is_forgotten(copy))
            ):
                self._steps.keep_output(copy)
                self._ledger.record(copy.at(Stage.GONE, now))
                self._steps.forget(copy)
