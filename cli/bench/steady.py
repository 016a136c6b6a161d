"""Counts the changes under a steady load, in a fleet that serves what was declared and has come to rest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.bench.plan_arguments import Say

if TYPE_CHECKING:
    from app.control.solve.solver import Solver
    from simulation.run import Simulation
    from simulation.shapes import Shape

QUIET_CYCLES = 10  # after the first plan
REST_CYCLES = 20  # in a row without a change: then the fleet has come to rest
MOST_CYCLES = 200  # until then
TICK_SECONDS = 5.0


def measure_steady(
    args: argparse.Namespace,
    documents: Sequence[Mapping[str, Any]],
    shapes: Mapping[str, Shape],
    solver: Solver,
    say: Say,
) -> dict[str, int]:
    """Returns the figures of a fleet with these manifests and loads, on a database of its own."""
    from app.control.cycle import CycleBudget
    from app.garbage import settle_for
    from simulation.own_database import own_database
    from simulation.run import open_simulation
    from simulation.world import read_documents

    say("a steady load, on another fleet")
    with (
        own_database("gpuwright-bench-", say) as url,
        open_simulation(url, read_documents(documents), shapes, seed=args.seed) as simulation,
    ):
        simulation.planner.solver = solver
        simulation.planner.budget = CycleBudget(args.seconds, args.work, args.seed)
        with settle_for():
            return count_changes(simulation, args.cycles, say)


def count_changes(simulation: Simulation, count: int, say: Say) -> dict[str, int]:
    """Returns the changes that nodes were assigned, weights apart, in so many cycles after the fleet has come to rest.

    A first plan is made quickly, and searches after it find cheaper ones: the changes until the rest have a count of
    their own.
    """
    changes, every = simulation.history.changes, simulation.planner.cycle_seconds
    simulation.advance(QUIET_CYCLES * every, TICK_SECONDS)
    cycles, rested, first = QUIET_CYCLES, 0, len(changes)
    while rested < REST_CYCLES and cycles < MOST_CYCLES:
        before = len(changes)
        simulation.advance(every, TICK_SECONDS)
        cycles, rested = cycles + 1, rested + 1 if len(changes) == before else 0
    before = len(changes)
    say(f"at rest after {cycles - rested} cycles, with {before - first} changes; now {count} cycles more")
    simulation.advance(count * every, TICK_SECONDS)
    return {"steady_changes": len(changes) - before, "rest_cycles": cycles - rested, "rest_changes": before - first}
