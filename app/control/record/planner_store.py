"""The planner's access to the database: reads snapshots, records decisions, assigns nodes; all under its epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import msgspec
from sqlalchemy import Connection

from agents.contract.assignments import Assignment
from app.control.domain.decision import Decision, PlanningLane, PlanState, SolveOutcome
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.events import NewEvent
from app.control.domain.leading import Deposed, FleetView, RolloutProgress
from app.control.domain.policy import policy_spec
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Snapshot
from app.control.measure import metrics
from app.control.observe.observer import ExpectLoads, Observer
from app.control.observe.silence import Silence
from app.control.record.encoding import add_others, plan_row, snapshot_parts
from app.control.record.records import read_learned
from app.store.database import clock, lease
from app.store.database.database import Database, T, Unavailable
from app.store.fleet import assignments
from app.store.fleet.load_news import NO_NEWS, NewsQuestion
from app.store.plans import approval_hold, plan_reads, plans, retention
from app.store.world import audit, events
from solvers.planners.names import JOINT
from solvers.planning.certificate_wire import others_in
from solvers.planning.plan import OtherPlan

FLEET_KINDS = ("Plan", "Cordon", "Campaign", "Node")  # whose acts wake the leader
ACTED_WITHIN = timedelta(minutes=1)  # the leader wakes within a second, and may be in a cycle by then


class PlannerStore:
    """The store of a planner. `epoch` is that of its lease, 0 while it has none."""

    def __init__(self, database: Database, holder: str, lease_seconds: float = 10.0) -> None:
        self.database = database
        self.holder = holder
        self.lease_seconds = lease_seconds
        self.epoch = 0
        self._observer = Observer()
        self._is_new = True
        self._reading = threading.Lock()  # the observer caches what it read

    def lead(self, begin: Callable[[], None] = lambda: None) -> bool:
        """Takes or renews the lease; returns True while leading. Under a new epoch, `begin` runs first."""
        epoch = self.database.repeatable(lambda connection: lease.take(connection, self.holder, self.lease_seconds))
        if epoch != self.epoch:
            self.epoch = 0
            self._is_new = True
            if epoch:
                begin()
        self.epoch = epoch or 0
        return epoch is not None

    def step_down(self) -> None:
        """Gives the lease up, so that another planner can lead at once."""
        if self.epoch:
            self.database.repeatable(lambda connection: lease.release(connection, self.holder))
        self.epoch = 0

    def read(self, fn: Callable[[Connection, Observer], T]) -> T:
        """Makes a consistent read. After a failed read the silence of nodes counts from then."""
        with self._reading:
            try:
                if self._is_new:
                    self._observer = Observer(Silence(self.database.read(clock.moment)))
                    self._is_new = False
                return self.database.read(lambda connection: fn(connection, self._observer))
            except Unavailable:
                self._is_new = True
                raise

    def snapshot(self, expecting: ExpectLoads) -> Snapshot:
        """Returns everything that a decision is made from, as of one moment."""
        return self.read(lambda c, observer: observer.snapshot(c, self.epoch, expecting))

    def world(self) -> tuple[DeclaredObject, ...]:
        """Returns every declared object."""
        return self.read(lambda c, observer: observer.world(c))

    @property
    def silence(self) -> Silence:
        """How the silence of nodes is counted by now."""
        with self._reading:
            return replace(self._observer.silence)

    def skip_statuses(self, before: int, after: int) -> None:
        """Does not read the world again for versions in which this planner wrote statuses alone."""
        with self._reading:
            self._observer.skip_statuses(before, after)

    def view(self, asked: NewsQuestion = NO_NEWS) -> FleetView:
        """Returns what a step of the rollout follows from, as of one moment, and the news of loads till then."""
        return self.read(lambda c, observer: observer.view(c, asked))

    def record(
        self, snapshot: Snapshot, decisions: Sequence[Decision], new_events: Sequence[NewEvent] = ()
    ) -> tuple[int, ...]:
        """Records all decisions or none, and returns their generations; raises Deposed or Overtaken if it may not.

        They are recorded under the snapshot's epoch: a lease lost and taken again meanwhile has another epoch.
        """
        read_others = partial(self._read_others, snapshot)
        rows = [(decision, plan_row(snapshot, add_others(decision, read_others))) for decision in decisions]

        def write(connection: Connection) -> tuple[int, ...]:
            found: list[int] = []
            base = snapshot.target
            for decision, row in rows:
                generation = plans.record(connection, snapshot.epoch, replace(row, base=base))
                if generation is None:
                    raise Deposed(f"epoch {snapshot.epoch} is over")
                found.append(generation)
                if decision.lane is PlanningLane.ROLLBACK:
                    approval_hold.begin(connection, generation)
                if decision.state is PlanState.ROLLING:
                    base = generation
                plans.record_cycle(
                    connection, snapshot.epoch, str(decision.answer.outcome), reason=decision.reason,
                    message=decision.message, generation=generation,
                )  # fmt: skip
            events.record(connection, new_events)
            return tuple(found)

        generations = self.database.write(write)
        metrics.count_events(new_events)
        for decision, _ in rows:
            metrics.count_decision(decision)
        return generations

    def _read_others(self, snapshot: Snapshot) -> tuple[OtherPlan, ...]:
        """Returns other planners' plans beside the plan in force, with their age; none if another planner plans."""
        if not snapshot.target or policy_spec(snapshot.declared).get("planner", JOINT) != JOINT:
            return ()
        rows, seconds = self.database.read(lambda connection: plans.read_others(connection, snapshot.target))
        return tuple(replace(other, age_seconds=other.age_seconds + seconds) for other in others_in(rows))

    def describe_last_act(self) -> str:
        """Returns what a person did to the fleet just now; empty if nobody did anything."""
        return self.database.read(lambda connection: audit.describe_last_act(connection, FLEET_KINDS, ACTED_WITHIN))

    def note(
        self,
        outcome: SolveOutcome,
        reason: str,
        message: str,
        snapshot: Snapshot | None,
        new_events: Sequence[NewEvent] = (),
    ) -> None:
        """Records a cycle without decision, with its snapshot if it may be replayed."""
        parts = snapshot_parts(snapshot) if snapshot else ()

        def write(connection: Connection) -> None:
            if not plans.record_cycle(
                connection, self.epoch, str(outcome), reason=reason, message=message, snapshot=parts
            ):
                raise Deposed(f"epoch {self.epoch} is over")
            events.record(connection, new_events)

        self.database.write(write)
        metrics.count_events(new_events)

    def assign(
        self, plan: plans.PlanInForce, desired: Desired, settled: RolloutProgress, new_events: Sequence[NewEvent] = ()
    ) -> bool:
        """Assigns these nodes their new state and records the rollout's progress: both or neither.

        Returns False, and assigns nothing, if an operator changed the plan's state meanwhile.
        """
        reached = msgspec.json.encode(settled.desired, order="deterministic") if settled.desired is not None else None

        def write(connection: Connection) -> bool:
            generation = lease.next_generation(connection, self.epoch)
            if generation is None:
                raise Deposed(f"epoch {self.epoch} is over")
            if not plans.settle(
                connection, plan.generation, plan.state, settled.state, settled.rollout, settled.message, reached
            ):
                return False
            drafts = [
                self._assignment(node, wanted, plan.generation, generation) for node, wanted in sorted(desired.items())
            ]
            assignments.write(connection, self.epoch, drafts)
            events.record(connection, new_events)
            return True

        is_written = self.database.write(write)
        if is_written:
            metrics.count_events(new_events)
        return is_written

    def note_progress(self, plan: plans.PlanInForce, settled: RolloutProgress) -> bool:
        """Records progress of a rollout that assigns nothing, without a generation; False as `assign` says."""

        def write(connection: Connection) -> bool:
            self._must_lead(connection)
            return plans.settle(connection, plan.generation, plan.state, settled.state, settled.rollout)

        return self.database.write(write)

    def change_state(
        self, generation: int, before: PlanState, after: PlanState, why: str, new_events: Sequence[NewEvent] = ()
    ) -> None:
        """Changes the state of a plan that is not being rolled out, if it is still in the state before."""

        def write(connection: Connection) -> None:
            self._must_lead(connection)
            if plan_reads.change_state(connection, generation, [before], after, "planner", why):
                events.record(connection, new_events)

        self.database.write(write)

    def refuse_request(self, generation: int, what: str, new_events: Sequence[NewEvent] = ()) -> None:
        """Records that an operator's request was refused."""

        def write(connection: Connection) -> None:
            self._must_lead(connection)
            plan_reads.clear_request(connection, generation, what)
            events.record(connection, new_events)

        self.database.write(write)

    def forget(self, days: float, most_bytes: float, limit: int) -> int:
        """Drops up to `limit` old decisions; returns how many."""

        def write(connection: Connection) -> int:
            self._must_lead(connection)
            return retention.forget(connection, days, most_bytes, limit)

        return self.database.write(write)

    def moment(self) -> datetime:
        """Returns the database's time, or the simulation's."""
        return self.database.read_simulated_moment() or self.database.read(clock.moment)

    def read_learned(self) -> tuple[frozenset[str], Mapping[str, ExpectedLoad]]:
        """Returns the shapes whose first instance passed its trial, and the loads of the newest decision.

        With these loads come what their margins were learned from.
        """
        return self.database.read(read_learned)

    def _must_lead(self, connection: Connection) -> None:
        """Raises Deposed if another planner has taken the lease; it stays ours until the transaction ends."""
        if not lease.is_newest(connection, self.epoch):
            raise Deposed(f"epoch {self.epoch} is over")

    def _assignment(self, node: str, wanted: NodeDesired, plan: int, generation: int) -> assignments.AssignmentDraft:
        def body(version: int) -> str:
            return msgspec.json.encode(
                Assignment(
                    node=node,
                    version=version,
                    epoch=self.epoch,
                    generation=generation,
                    plan=f"p{plan}",
                    instances=wanted.instances,
                    swapped=wanted.swapped,
                    gpus=wanted.gpus,
                    handover=wanted.handover,
                    handover_seconds=wanted.handover_seconds,
                    clients_per_gpu=wanted.clients_per_gpu,
                    same_model_per_gpu=wanted.same_model_per_gpu,
                )
            ).decode()

        return assignments.AssignmentDraft(node, generation, body)
