"""Injects faults into a simulated fleet and its planners, and checks invariants after every tick.

Everything else is the product: planner, store, Postgres, the nodes' own decisions. A seed repeats the sequence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import pairwise

from sqlalchemy import text

from agents.contract.assignments import Assignment
from agents.keeper.copies import NodeCopy, Stage
from app.control.cycle import CycleBudget
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.events import Reason
from app.control.domain.ports import Meanwhile, just_wait
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.solve.inline import Inline
from simulation.fleet.node import LightNode
from simulation.run import LEASE_SECONDS, WORK, Simulation
from simulation.shapes import Shape, steady
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

CUT_OFF = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
BACKWARDS = "SELECT node, instance FROM usage_interval WHERE ended_at < started_at"
STRUCK_SECONDS = 30.0  # after a fault hit a service's copy, a missing copy is blamed on the fault
MOST_SM_PERCENT = 100.0 + 1e-6


FAULTS = (
    "node_silent",
    "half_the_nodes_silent",
    "reports_lost",
    "reports_doubled",
    "reports_late",
    "gpu_lost",
    "reclaim_notice",
    "agent_restarted",
    "copy_killed",
    "start_fails",
    "gateway_away",
    "clock_off",
    "leader_dies",
    "leader_paused",
    "solver_fails",
    "connections_cut",
    "control_plane_away",
    "old_assignment",
    "load_moves",
)


class Failing(Inline):
    """A solver that fails as often as configured."""

    def __init__(self) -> None:
        self.outcomes: list[SolveOutcome] = []
        self.spoil: Callable[[Plan], Plan] | None = None  # applied to the next plan

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        if self.outcomes:
            return SolverAnswer(self.outcomes.pop(0), None, "as the test wants it")
        return self._spoiled(super().solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile))

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        if self.outcomes:
            return SolverAnswer(self.outcomes.pop(0), None, "as the test wants it")
        return self._spoiled(super().follow(problem, plan, rates, seconds=seconds))

    def _spoiled(self, answer: SolverAnswer) -> SolverAnswer:
        if self.spoil is None or answer.plan is None:
            return answer
        spoil, self.spoil = self.spoil, None
        return replace(answer, plan=spoil(answer.plan))


class NothingToHit(Exception):
    """There is nothing that a fault of this kind could strike now."""


@dataclass
class Chaos:
    """One fleet under faults. `violations` lists the invariants that were broken."""

    simulation: Simulation
    seed: int
    faults: Sequence[str] = FAULTS  # methods of this class
    spell_factor: float = 1.0  # how long faults last, relative to their usual time
    struck: list[str] = field(default_factory=list)
    has_hit: bool = False  # the last fault found something to strike
    violations: list[str] = field(default_factory=list)
    _spells: list[tuple[float, Callable[[], None]]] = field(
        default_factory=list
    )  # when a fault ends, and the call that ends it
    _hit_at: dict[str, float] = field(default_factory=dict)  # by service
    _marks: dict[str, tuple[int, int]] = field(default_factory=dict)  # by node: the highest (epoch, generation)
    _ready: dict[str, int] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)  # instances that ran
    _history: list[tuple[LightNode, Assignment]] = field(default_factory=list)
    _planners: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.solver = Failing()
        self.simulation.planner = self._planner()

    def strike(self, name: str | None = None) -> str:
        """Injects one fault for a while and returns its name."""
        chosen = name or self.rng.choice(sorted(self.faults))
        self.struck.append(chosen)
        self.has_hit = True
        try:
            getattr(self, chosen)()
        except NothingToHit:
            self.has_hit = False
        return chosen

    def advance(self, seconds: float, tick_seconds: float = 1.0) -> None:
        """Lets time pass, ends faults that are due, and checks."""
        for now in self.simulation.seconds(seconds, tick_seconds):
            due = [end for at, end in self._spells if at <= now]
            self._spells = [(at, end) for at, end in self._spells if at > now]
            for end in due:
                end()
            self.look()

    def mend(self) -> None:
        """Ends every fault."""
        for _, end in self._spells:
            end()
        self._spells = []
        self.solver.outcomes.clear()

    # Faults.

    def node_silent(self) -> None:
        self._silence([self._node().name])

    def half_the_nodes_silent(self) -> None:
        names = sorted(self.simulation.fleet.nodes)
        self._silence(self.rng.sample(names, len(names) // 2))

    def reports_lost(self) -> None:
        self._post("lost")

    def reports_doubled(self) -> None:
        self._post("doubled")

    def reports_late(self) -> None:
        self._post("late")

    def gpu_lost(self) -> None:
        node = self._node()
        gpu = self.rng.randrange(len(node.uuids))
        self._hit(copy for copy in node.alive() if copy.gpu == node.uuids[gpu])
        node.lose(gpu)
        self._later(20, 200, lambda: node.give_back(gpu))

    def reclaim_notice(self) -> None:
        """Gives a node notice; its cloud thinks better of it, sometimes only after the deadline."""
        node = self._node()
        node.reclaim_at = node.clock.now() + timedelta(seconds=self.rng.uniform(10, 150))
        node.news = True
        self._later(20, 300, lambda: setattr(node, "reclaim_at", None))

    def agent_restarted(self) -> None:
        self._node().restart()

    def copy_killed(self) -> None:
        alive = [(node, copy) for node in self.simulation.fleet.nodes.values() for copy in node.alive()]
        if not alive:
            raise NothingToHit
        node, copy = self.rng.choice(alive)
        self._hit([copy])
        node.kill(copy.id)

    def start_fails(self) -> None:
        assigned = [(node, node.memory.assignment) for node in self.simulation.fleet.nodes.values()]
        full = [(node, assignment.instances) for node, assignment in assigned if assignment and assignment.instances]
        if not full:
            raise NothingToHit
        for node, instances in full:
            instance = self.rng.choice(instances)
            node.failing[instance.id] = self.rng.randint(1, 3)

    def gateway_away(self) -> None:
        node = self._node()
        node.gateway_away = True
        self._later(5, 90, lambda: setattr(node, "gateway_away", False))

    def clock_off(self) -> None:
        node = self._node()
        node.clock_off = timedelta(hours=self.rng.choice([-1, 1]))
        self._later(20, 120, lambda: setattr(node, "clock_off", timedelta()))

    def leader_dies(self) -> None:
        self.simulation.planner = self._planner()

    def leader_paused(self) -> None:
        """Pauses the leader: it returns after another has taken over, and continues what it was doing."""
        paused = self.simulation.planner
        self.simulation.planner = self._planner()

        self._later(LEASE_SECONDS + 5, 90, lambda: self._resume(paused))

    def _resume(self, paused: Planner) -> None:
        cycle = partial(paused.cycle, Reason.CYCLE)
        acts: list[Callable[[], object]] = [cycle, paused.advance, paused.quicken, paused.lead]
        self.rng.shuffle(acts)
        for act in acts:
            act()

    def solver_fails(self) -> None:
        kinds = [SolveOutcome.CRASHED, SolveOutcome.OUT_OF_TIME, SolveOutcome.WRONG]
        self.solver.outcomes += [self.rng.choice(kinds) for _ in range(self.rng.randint(1, 3))]

    def connections_cut(self) -> None:
        with self.simulation.database.engine.connect() as connection:
            connection.execute(text(CUT_OFF))

    def control_plane_away(self) -> None:
        """Takes the control plane away: no decisions, no reports; then all is back, and no node was lost."""
        self.simulation.plans = False
        names = sorted(self.simulation.fleet.nodes)
        self.simulation.post.silence(names)

        def back() -> None:
            self.simulation.plans = True
            self.simulation.post.silence(names, "as usual")

        self._later(20, 300, back)

    def old_assignment(self) -> None:
        """Delivers an outdated assignment."""
        if not self._history:
            raise NothingToHit
        node, old = self.rng.choice(self._history)
        node.offer(old)

    def load_moves(self) -> None:
        service = self.rng.choice(sorted(self.simulation.fleet.declared))
        factor = self.rng.uniform(0.3, 2.0)

        def moved(_seconds: float) -> float:
            return factor

        shape: Shape = moved
        self.simulation.fleet.shapes[service] = shape
        self._later(60, 240, lambda: self.simulation.fleet.shapes.__setitem__(service, steady))

    # Invariants.

    def look(self) -> None:
        """Checks all invariants now."""
        now = self.simulation.clock.seconds
        places: dict[str, set[str]] = {}
        for node in self.simulation.fleet.nodes.values():
            self._never_goes_back(node)
            self._fits(node)
            for copy in node.alive():
                places.setdefault(copy.instance, set()).add(node.name)
                if copy.instance not in self._known and not node.contact and copy.born > now - 1.5:
                    self._violated("I4", f"{copy.instance} was started on {node.name}, which has no contact")
                self._known.add(copy.instance)
        for instance, nodes in places.items():
            if len(nodes) > 1:
                self._violated("I1", f"{instance} runs on {sorted(nodes)}")
        for service in self.simulation.fleet.declared:
            ready = self.simulation.fleet.ready(service)
            hit = now - self._hit_at.get(service, -1e9) <= STRUCK_SECONDS
            if not ready and self._ready.get(service, 0) and not hit:
                self._violated("I3", f"{service} has no ready copy, and no fault explains it")
            self._ready[service] = ready

    def at_the_end(self) -> None:
        """Checks the records of the whole run."""
        epochs = self.simulation.database.read(
            lambda c: list(c.execute(text("SELECT generation, epoch FROM plan ORDER BY generation")))
        )
        for (before, earlier), (after, later) in pairwise(epochs):
            if later < earlier:
                self._violated("I1", f"plan {after} is of epoch {later}, plan {before} before it of {earlier}")
        doubled = self.simulation.database.read(lambda c: list(c.execute(text(BACKWARDS))))
        for row in doubled:
            self._violated("I7", f"usage of {row.instance} on {row.node} ends before it begins")

    def _never_goes_back(self, node: LightNode) -> None:
        mark = (node.memory.epoch, node.memory.generation)
        if mark < self._marks.get(node.name, (0, 0)):
            self._violated("I1", f"{node.name} went back from {self._marks[node.name]} to {mark}")
        if mark > self._marks.get(node.name, (0, 0)) and node.memory.assignment is not None:
            self._history.append((node, node.memory.assignment))
        self._marks[node.name] = mark

    def _fits(self, node: LightNode) -> None:
        total_gib = self.simulation.fleet.truth.kind(node.gpu_type).memory_gib
        for uuid in node.uuids:
            copies = [copy for copy in node.alive() if copy.gpu == uuid]
            if sum(copy.wanted.memory_gib for copy in copies) > total_gib + 1e-6:
                self._violated("I6", f"memory of {node.name} {uuid[-4:]}")
            if sum(copy.wanted.sm_percent for copy in copies) <= MOST_SM_PERCENT:
                continue
            handed = {copy.instance for copy in copies if sum(other.instance == copy.instance for other in copies) > 1}
            settled = {copy.instance: copy.wanted.sm_percent for copy in copies}
            if len(handed) != 1 and sum(settled.values()) > MOST_SM_PERCENT:
                self._violated("I6", f"{node.name} {uuid[-4:]} allots {sum(c.wanted.sm_percent for c in copies)} %")

    # Helpers.

    def _planner(self) -> Planner:
        self._planners += 1
        database = self.simulation.database
        store = PlannerStore(database, f"planner-{self._planners}", LEASE_SECONDS)
        return Planner(store, self.solver, ReportListener(database), CycleBudget(work=WORK, seed=self.seed))

    def _node(self) -> LightNode:
        return self.simulation.fleet.nodes[self.rng.choice(sorted(self.simulation.fleet.nodes))]

    def _silence(self, names: list[str], least: float = 20, most: float = 300) -> None:
        self.simulation.post.silence(names)
        for name in names:
            self._hit(self.simulation.fleet.nodes[name].alive())

        def back() -> None:
            self.simulation.post.silence(names, "as usual")
            for name in names:  # copies that were placed elsewhere meanwhile are stopped here
                self._hit(self.simulation.fleet.nodes[name].alive())

        self._later(least, most, back)

    def _post(self, how: str) -> None:
        name = self._node().name
        self.simulation.post.silence([name], how)  # type: ignore[arg-type]
        self._later(20, 120, lambda: self.simulation.post.silence([name], "as usual"))

    def _hit(self, copies: object) -> None:
        for copy in copies:  # type: ignore[attr-defined]
            assert isinstance(copy, NodeCopy)
            if copy.served and copy.stage is not Stage.GONE:
                self._hit_at[copy.service] = self.simulation.clock.seconds

    def _later(self, least: float, most: float, end: Callable[[], None]) -> None:
        seconds = self.spell_factor * self.rng.uniform(least, most)
        self._spells.append((self.simulation.clock.seconds + seconds, end))

    def _violated(self, invariant: str, what: str) -> None:
        violation = f"{invariant} at {self.simulation.clock.seconds:.0f} s after {self.struck[-3:]}: {what}"
        if violation not in self.violations:
            self.violations.append(violation)
