"""Measures what a cycle costs outside the solver, how soon a rising load gets capacity, what a steady load moves.

The real planner runs on a Postgres of its own, over a fleet in virtual time; its solver in a process of its own. Then a
real server with many agents, each of which holds a poll, measures how soon a decision reaches its agent.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say, add_family_argument, add_plan_arguments

if TYPE_CHECKING:
    from app.control.domain.decision import SolverAnswer
    from app.control.planner import Planner
    from app.control.solve.solver import Solver
    from cli.bench.system import System
    from simulation.run import Simulation
    from solvers.planning.batches.batch import GroupRow
    from solvers.planning.plan import Plan
    from solvers.planning.problem import Problem

SHOWN = (
    "gpus", "services", "overhead_ms", "overhead_cpu_ms", "first_overhead_ms", "unchanged_overhead_ms", "solver_ms",
    "steady_changes", "signal_to_step_p99_ms", "cycle_mb", "decision_to_agent_p99_ms",
)  # fmt: skip
NOISE_SHARE = 0.02
MOVED_SHARE = 0.05  # of services, from round to round
RISE_FACTOR = 1.3  # of their rates
ROUNDS = 5
SPIKE_FACTOR = 1.8  # times its load, of each service in turn
SPIKE_SECONDS = 8
TICK_SECONDS = 5.0
AGENT_SECONDS = 20.0
REPORT_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=1000, help="GPUs; default 1000")
    parser.add_argument("--services", metavar="N", type=whole(1), default=300, help="services; default 300")
    add_family_argument(parser)
    parser.add_argument("--seed", metavar="K", type=whole(0), default=0, help="default 0")
    parser.add_argument(
        "--cycles", metavar="C", type=whole(0), default=100, help="cycles under a steady load; default 100"
    )
    parser.add_argument(
        "--spikes", metavar="S", type=whole(0), default=20, help="services whose load rises; default 20"
    )
    parser.add_argument("--agents", metavar="N", type=whole(1, 100_000), default=1000, help="default 1000")
    parser.add_argument("--cores", metavar="C", type=whole(1), default=1, help="cores of the solver; default 1")
    add_plan_arguments(parser)


@dataclass(slots=True)
class TimedSolver:
    """A solver, the number of its plans, and the seconds that they took in its process."""

    inner: Solver
    seconds: float = 0.0
    plans: int = 0

    def solve(self, problem: Problem, **limits: Any) -> SolverAnswer:
        answer = self.inner.solve(problem, **limits)
        self.seconds += answer.seconds
        self.plans += 1
        return answer

    def prepare(self, problem: Problem, plan: Plan) -> None:
        self.inner.prepare(problem, plan)

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        return self.inner.add(problem, seconds=seconds)

    def find_batches(self, problem: Problem, plan: Plan, known: Sequence[GroupRow], **limits: Any) -> SolverAnswer:
        answer = self.inner.find_batches(problem, plan, known, **limits)
        self.seconds += answer.seconds
        return answer

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        answer = self.inner.make_batches(problem, plan, groups, seconds=seconds)
        self.seconds += answer.seconds
        return answer

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        began = perf_counter()
        answer = self.inner.follow(problem, plan, rates, seconds=seconds)
        self.seconds += perf_counter() - began
        return answer


@dataclass(slots=True)
class TimedFastLane:
    """A planner whose quick steps are timed, as it times them itself: from its look until assignments are written."""

    inner: Planner
    took_ms: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def step(self) -> int:
        before = _quick_seconds()
        generation = self.inner.step()
        if generation:
            self.took_ms.append((_quick_seconds() - before) * 1000)
        return generation


def _quick_seconds() -> float:
    """Returns the seconds of all quick steps so far."""
    from app.http.metrics import REGISTRY

    return REGISTRY.get_sample_value("gpuwright_fast_lane_seconds_sum") or 0.0


@dataclass(frozen=True, slots=True)
class CycleTime:
    """The time of a cycle without its solver: by the clock, and of planner and Postgres on processors."""

    wall_ms: float
    cpu_ms: float


@dataclass(slots=True)
class Cycles:
    """Runs and times the planner's cycles."""

    simulation: Simulation
    solver: TimedSolver
    system: System
    say: Say

    def run(self) -> CycleTime:
        """Runs a cycle now."""
        from app.control.domain.events import Reason

        before, plans = self.solver.seconds, self.solver.plans
        cpu, postgres, began = process_time(), self.system.cpu_seconds()["postgres"], perf_counter()
        found = self.simulation.planner.cycle(Reason.CYCLE)
        wall = perf_counter() - began
        in_solver = self.solver.seconds - before
        spent = process_time() - cpu + self.system.cpu_seconds()["postgres"] - postgres
        took = CycleTime((wall - in_solver) * 1000, spent * 1000)
        outcome = str(found.outcome) if found else "not leading"
        what = outcome if self.solver.plans > plans else f"{outcome}, without the solver"
        self.say(f"  {what}: {took.wall_ms:.0f} ms ({took.cpu_ms:.0f} of processors) and {in_solver:.2f} s of solver")
        return took


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for the given size."""
    from app.control.cycle import CycleBudget
    from app.control.solve.solver import Solver
    from app.garbage import settle_for
    from cli.bench import api
    from cli.bench.steady import measure_steady
    from cli.bench.system import own_system
    from simulation.run import open_simulation
    from simulation.shapes import noisy, steady
    from simulation.world import read_documents

    documents = _documents(args)
    world = read_documents(documents)
    services = [document for document in documents if document["kind"] == "Service"]
    names = [f"{service['metadata']['tenant']}/{service['metadata']['name']}" for service in services]
    shapes = {name: noisy(steady, NOISE_SHARE, f"{args.seed} {name}") for name in names}
    inner = Solver(cores=args.cores)
    row: dict[str, Any] = {"gpus": args.gpus, "services": args.services}
    try:
        with own_system(say) as system:
            with open_simulation(system.database_url, world, shapes, seed=args.seed) as simulation:
                solver = TimedSolver(inner)
                simulation.planner.solver = solver
                simulation.planner.budget = CycleBudget(args.seconds, args.work, args.seed)
                with settle_for():  # as the planner's own program is
                    row |= _overheads(Cycles(simulation, solver, system, say), documents)
                row["peak_mb"] = round(getrusage(RUSAGE_SELF).ru_maxrss / 1024)
                row |= _time_answers(simulation, names, args.spikes, say)
            tokens = api.declare_nodes(system, args.agents, say)
            order = api.ApiLoad(args.agents, AGENT_SECONDS, args.agents / REPORT_SECONDS)
            found = api.load(system, tokens, order, say)
            row |= {"agents": args.agents, "decision_to_agent_p99_ms": found["decision_to_agent_p99_ms"]}
        # On another fleet: this one is full by now, since many of its rates have risen.
        is_steady = args.cycles > 0
        row |= measure_steady(args, _documents(args), shapes, inner, say) if is_steady else {"steady_changes": None}
    finally:
        inner.close()
    return {"rows": [row]}


def _documents(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the manifests of the fleet, in mode auto."""
    from benchmarks.families import family
    from benchmarks.manifests import manifests

    documents = manifests(family(args.family, args.gpus, args.services, args.seed))
    for document in documents:
        if document["kind"] == "Policy":
            document["spec"]["mode"] = "auto"
    return documents


def _overheads(cycles: Cycles, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Measures the first plan, plans after some rates changed, and cycles after which nothing changed."""
    from simulation.world import put, read_documents

    simulation = cycles.simulation
    cycles.say("the first plan")
    simulation.fleet.tick()
    simulation.post.collect()
    simulation.planner.lead()
    first = cycles.run()
    simulation.advance(60.0, TICK_SECONDS)
    decided: list[CycleTime] = []
    repeated: list[CycleTime] = []
    stored: list[int] = []
    unchanged: list[int] = []
    services = [document for document in documents if document["kind"] == "Service"]
    few = max(1, round(MOVED_SHARE * len(services)))
    for number in range(ROUNDS):
        moved = services[number * few : (number + 1) * few]
        for service in moved:
            service["spec"]["ratePerSecond"] *= RISE_FACTOR
        put(simulation.database, read_documents(documents))
        cycles.say(f"round {number + 1}: {len(moved)} services are declared at {RISE_FACTOR:g} times their rate")
        before = _count_stored(simulation)
        decided.append(cycles.run())
        stored.append(_count_stored(simulation) - before)
        repeated.append(cycles.run())
        unchanged.append(_count_stored(simulation) - before - stored[-1])
        simulation.advance(30.0, TICK_SECONDS)
    worst = max(decided, key=lambda took: took.wall_ms)
    return {
        "overhead_ms": round(worst.wall_ms, 1),
        "overhead_median_ms": round(median(took.wall_ms for took in decided), 1),
        "overhead_cpu_ms": round(worst.cpu_ms, 1),
        "first_overhead_ms": round(first.wall_ms, 1),
        "first_overhead_cpu_ms": round(first.cpu_ms, 1),
        "unchanged_overhead_ms": round(max(took.wall_ms for took in repeated), 1),
        "unchanged_overhead_cpu_ms": round(max(took.cpu_ms for took in repeated), 1),
        "cycle_mb": round(max(stored) / 1e6, 3),
        "unchanged_cycle_mb": round(min(unchanged) / 1e6, 3),
        "solver_ms": round(1000 * cycles.solver.seconds / max(1, cycles.solver.plans), 1),
    }


def _count_stored(simulation: Simulation) -> int:
    """Returns the bytes of all pieces of snapshots and plans, compressed as they are stored."""
    from app.store.plans import retention

    return simulation.database.read(retention.size)


def _time_answers(simulation: Simulation, names: Sequence[str], count: int, say: Say) -> dict[str, Any]:
    """Times the fast lane by the clock: from a load that arrives to assignments that are written.

    It looks at loads every so often; a load that arrives right after a look waits a whole tick, which counts.
    """
    from app.planner import QUICK_TICK_SECONDS

    planner = simulation.planner
    lane = TimedFastLane(planner)
    simulation.planner = lane  # type: ignore[assignment]
    say(f"{count} services get {SPIKE_FACTOR:g} times their load, in turn")
    for name in names[:: max(1, len(names) // max(1, count))][:count]:
        steady = simulation.fleet.shapes[name]
        simulation.fleet.shapes[name] = lambda seconds, steady=steady: SPIKE_FACTOR * steady(seconds)  # type: ignore[misc]
        simulation.advance(SPIKE_SECONDS, 1.0)
        simulation.fleet.shapes[name] = steady
    simulation.planner = planner
    took = sorted(lane.took_ms)
    if not took:
        return {"fast_steps": 0, "fast_step_ms": None, "fast_step_p99_ms": None, "signal_to_step_p99_ms": None}
    worst = took[min(len(took) - 1, int(0.99 * len(took)))]
    return {
        "fast_steps": len(took),
        "fast_step_ms": round(median(took), 1),
        "fast_step_p99_ms": round(worst, 1),
        "signal_to_step_p99_ms": round(1000 * QUICK_TICK_SECONDS + worst, 1),
    }
