"""Measures how many requests a second simulations serve: a fleet that carries out a plan, and a language model."""

from __future__ import annotations

import argparse
import time
from typing import Any

from cli.arguments import positive, whole
from cli.bench.plan_arguments import Say, add_family_argument

LANGUAGE_MODEL_RUNS = 3
SETTLE_SECONDS = 30.0
TICK_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=100, help="default 100")
    parser.add_argument("--services", metavar="N", type=whole(1), default=50, help="default 50")
    parser.add_argument("--seconds", metavar="S", type=positive, default=60.0, help="of virtual time; default 60")
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="default 0")
    add_family_argument(parser)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns the requests served a second of this machine's time, and how many met their SLO."""
    from benchmarks import token_queue
    from benchmarks.families import family
    from simulation.clock import Clock
    from simulation.fleet.fleet import SimulatedFleet
    from simulation.fleet.plan_execution import carry_out
    from simulation.fleet_truth import FleetTruth
    from solvers.planning.solve import SolveBudget, solve

    problem = family(args.family, args.gpus, args.services, args.seed)
    say(f"planning {args.gpus} GPUs and {args.services} services")
    plan = solve(problem, SolveBudget(seconds=None, work=3, seed=args.seed))
    clock = Clock()
    fleet = SimulatedFleet(FleetTruth(problem), clock, seed=args.seed)
    carry_out(fleet, plan)
    for _ in range(int(SETTLE_SECONDS)):
        clock.advance(TICK_SECONDS)
        fleet.tick()
    before = {name: (total.answered, total.within, total.errors) for name, total in fleet.services.items()}
    say(f"serving for {args.seconds:g} s of virtual time")
    began = time.monotonic()
    for _ in range(int(args.seconds / TICK_SECONDS)):
        clock.advance(TICK_SECONDS)
        fleet.tick()
    took = time.monotonic() - began
    answered = within = errors = services_within = 0
    for name, total in fleet.services.items():
        some, in_time, failed = before[name]
        answered += total.answered - some
        within += total.within - in_time
        errors += total.errors - failed
        requests = total.answered - some + total.errors - failed
        percentile = problem.services[name].percentile
        services_within += not requests or 100 * (total.within - in_time) >= percentile * requests
    say("serving requests of a language model")
    language_model = token_queue.measure(LANGUAGE_MODEL_RUNS)
    return {
        "requests_per_second": round((answered + errors) / took),
        "virtual_seconds_per_second": round(args.seconds / took, 1),
        "requests": answered + errors,
        "attained": round(within / max(1, answered + errors), 5),
        "services_within_slo": services_within,
        "services": len(problem.services),
        "unserved": len(plan.unserved),
        "language_model": language_model,
    }
