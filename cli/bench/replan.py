"""Measures how long a warm process takes from new rates to a judged plan, and what it leaves alone."""

from __future__ import annotations

import argparse
import gc
from time import perf_counter
from typing import Any

from cli.arguments import part, whole
from cli.bench.plan_arguments import Say, add_family_argument, add_plan_arguments

SHOWN = ("round", "ms", "cpu_ms", "started", "stopped", "resized", "untouched_moved", "cost", "unserved", "drift")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=1000, help="GPUs; default 1000")
    parser.add_argument("--services", metavar="N", type=whole(1), default=300, help="services; default 300")
    add_family_argument(parser)
    parser.add_argument("--seed", metavar="K", type=whole(0), default=0, help="default 0")
    parser.add_argument(
        "--changed", metavar="P", type=part, default=0.05, help="share of the services that change; default 0.05"
    )
    parser.add_argument("--rounds", metavar="R", type=whole(1), default=20, help="successive changes; default 20")
    parser.add_argument("--no-cold", action="store_true", help="leave out the cold plan at the end")
    add_plan_arguments(parser)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each round; the end is compared with a cold plan of as much work as the first."""
    from benchmarks.families import family
    from benchmarks.replanning import percentiles, run_rounds
    from solvers.planning.replan import Replanner
    from solvers.planning.solve import SolveBudget, solve

    problem = family(args.family, args.gpus, args.services, args.seed)
    say(f"the plan to start from: {args.gpus} GPUs, {args.services} services, {args.seconds:g} s")
    plan = solve(problem, SolveBudget(args.seconds, args.work, args.seed))
    assert plan.certificate
    began = perf_counter()
    replanner = Replanner.of(problem, plan)
    prepared_ms = (perf_counter() - began) * 1000
    say(f"  cost {plan.certificate.cost.total:,.2f}; ready for changes after {prepared_ms:.0f} ms")
    gc.collect()
    gc.freeze()  # a process that stays warm does not look through its plan for garbage at every change
    rows = []
    last = problem
    for current, row in run_rounds(problem, plan, replanner, args.changed, args.rounds, args.seed, perf_counter):
        last = current
        rows.append({"gpus": args.gpus, "services": args.services} | row | {"drift": None})
        say(f"  round {row['round']}: {row['ms']:.1f} ms, {row['started']} started, {row['stopped']} stopped")
        if row["full_plan_due"]:
            say(f"    a full plan is due: {row['full_plan_due'][0]}")
    found: dict[str, Any] = {
        "rows": rows,
        **percentiles([row["ms"] for row in rows]),
        "p50_cpu_ms": percentiles([row["cpu_ms"] for row in rows])["p50_ms"],
        "untouched_moved": sum(row["untouched_moved"] for row in rows),
        "base_cost": plan.certificate.cost.total,
        "work": plan.certificate.work,
        "end_cost": rows[-1]["cost"],
        "prepared_ms": prepared_ms,
        "full_plan_due": bool(rows[-1]["full_plan_due"]),  # after the last change
    }
    if not args.no_cold:
        say(f"a cold plan of as much work as the first, {plan.certificate.work} steps")
        cold = solve(last, SolveBudget(None, plan.certificate.work, args.seed))
        assert cold.certificate
        found["cold_cost"] = cold.certificate.cost.total
        found["drift"] = rows[-1]["drift"] = rows[-1]["cost"] / cold.certificate.cost.total - 1
        due = "a full plan is due" if found["full_plan_due"] else "no full plan is due"
        say(f"  {found['drift']:+.2%} against a cold plan; {due}")
    return found
