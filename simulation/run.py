"""A fleet and its planner in virtual time on a real Postgres, with the product's planner, store and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

from app.control.cycle import CycleBudget
from app.control.decide.last_question import CycleResult
from app.control.domain.events import Reason
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.rent.rule import AccountRule, RentRule
from app.control.solve.inline import Inline
from app.manifests.offline import DeclaredFiles
from app.nodes import device_status
from app.store.database.database import Database
from simulation import world as worlds
from simulation.clock import Clock
from simulation.fleet.fleet import NodeMaker, SimulatedFleet, make_light_node
from simulation.fleet.gateway import Gateway
from simulation.fleet.history import History, list_changes
from simulation.fleet.messages import Post
from simulation.renting import SimulatedCloud
from simulation.shapes import Shape
from simulation.truth.physics import Physics

LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
NOTE_SECONDS = 10.0
MARK_SECONDS = 30.0
LEARN_SECONDS = 60.0
RENT_SECONDS = 10.0
SOONEST_SECONDS = 2.0  # between two cycles
WORK = 40

ASSIGNMENTS = ("write_assignments",)
LIMITS = ("limit_traffic",)
OBJECTS = ("insert_changes",)  # declared, changed or deleted


class WrittenStatements:
    """How often each statement has run on a database."""

    def __init__(self, database: Database) -> None:
        self._runs: Counter[str] = Counter()
        event.listen(database.engine, "after_cursor_execute", self._note)

    def count(self, *names: str) -> int:
        """Returns how often these have run: a number that is another one after news."""
        return sum(self._runs[name] for name in names)

    def _note(self, _conn: Connection, _cur: Any, _sql: str, _values: Any, context: Any, _many: bool) -> None:
        self._runs[context.execution_options.get("statement", "")] += 1


class Simulation:
    """One planner over one fleet; `advance` lets time pass."""

    def __init__(self, database: Database, fleet: SimulatedFleet, planner: Planner, cloud: SimulatedCloud) -> None:
        self.database = database
        self.fleet = fleet
        self.clock = fleet.clock
        self.planner = planner
        self.cloud = cloud
        self.post = Post(fleet, database)
        cloud.join(fleet, self.post)
        self._written = WrittenStatements(database)
        self.gateway = Gateway(fleet, database, lambda: self._written.count(*LIMITS))
        self.history = History()
        self.cycles = 0
        self.last: CycleResult | None = None
        self.plans = True  # False: no new decisions
        self._cycled_at = float("-inf")
        self._delivered = -1  # of what is written, when assignments were delivered
        self._due = {"lead": 0.0, "note": 0.0, "mark": 0.0, "learn": 0.0, "rent": 0.0}

    def seconds(self, seconds: float, tick_seconds: float = 1.0) -> Iterator[float]:
        """Lets time pass, and yields after every tick."""
        until = self.clock.seconds + seconds
        while self.clock.seconds < until - 1e-9:
            self.clock.advance(min(tick_seconds, until - self.clock.seconds))
            self.tick()
            yield self.clock.seconds

    def advance(self, seconds: float, tick_seconds: float = 1.0) -> None:
        for _ in self.seconds(seconds, tick_seconds):
            pass

    def tick(self) -> None:
        """Does everything due at this moment, in the order of a real fleet."""
        self.cloud.tick()
        self.fleet.tick()
        self.gateway.count()
        self.post.collect()
        self.gateway.report()
        if self._is_due("note", NOTE_SECONDS) and self.database.read(device_status.has_news):
            self.database.write(device_status.update_device_statuses)
        if self.plans:
            self._plan()
        self._deliver()
        if self._is_due("mark", MARK_SECONDS):
            self.history.mark(self.fleet)

    def _plan(self) -> None:
        """Plans at the times at which the planner's process would."""
        if self._is_due("lead", RENEW_SECONDS):
            self.planner.lead()
        since = self.clock.seconds - self._cycled_at
        wake = self.planner.called_for
        if since >= self.planner.cycle_seconds or (wake and since >= SOONEST_SECONDS):
            self._cycled_at = self.clock.seconds
            self.last = self.planner.cycle(wake or Reason.CYCLE)
            self.cycles += 1
        if self._is_due("rent", RENT_SECONDS):
            self.planner.rent_nodes()
        if self._is_due("learn", LEARN_SECONDS):
            self.planner.learn()
        self.planner.step()

    def _deliver(self) -> None:
        written = self._written.count(*ASSIGNMENTS, *OBJECTS)
        if written == self._delivered and not self.post.is_behind:
            return
        self._delivered = written
        before = {name: node.memory.assignment for name, node in self.fleet.nodes.items()}
        if not self.post.deliver():
            return
        for name, node in self.fleet.nodes.items():
            after = node.memory.assignment
            if after is not None and after is not before[name]:
                self.history.changes += list_changes(self.clock.seconds, before[name], after)

    def _is_due(self, what: str, every_seconds: float) -> bool:
        if self.clock.seconds < self._due[what]:
            return False
        self._due[what] = max(self._due[what] + every_seconds, self.clock.seconds + 1e-9)
        return True


@contextmanager
def open_simulation(
    database_url: str,
    world: DeclaredFiles,
    shapes: Mapping[str, Shape] | None = None,
    seed: int = 0,
    work: int = WORK,
    make_node: NodeMaker = make_light_node,
    physics: Physics | None = None,
    make_rent_rule: Callable[[], RentRule] = AccountRule,
) -> Iterator[Simulation]:
    """Declares the world in an empty database, and yields a fleet and a planner there.

    `make_node` may make nodes of another kind. With a physics, profiles are only what the planner believes.
    """
    clock = Clock()
    database = Database(database_url, pool_size=3, direct=True, moment=clock.now)
    try:
        worlds.put(database, world)
        truth = worlds.truth_of(world, physics)
        fleet = SimulatedFleet(truth, clock, shapes, seed, make_node=make_node)
        cloud = SimulatedCloud(world, lambda known: worlds.truth_of(known, physics))
        planner = Planner(
            PlannerStore(database, "simulation", LEASE_SECONDS),
            Inline(bounds_of_others=False),  # most of such a cycle's time, and no figure depends on them
            ReportListener(database),
            budget=CycleBudget(work=work, seed=seed),
            hooks=cloud,
            make_rent_rule=make_rent_rule,
        )
        yield Simulation(database, fleet, planner, cloud)
    finally:
        database.close()
