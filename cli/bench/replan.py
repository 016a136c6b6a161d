"""Measures how a running plan follows new rates: of some services in a warm process, or of all at once."""

from __future__ import annotations

import argparse
import gc
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cli.arguments import completes, part, whole
from cli.bench.plan_arguments import Say, add_family_argument, add_plan_arguments
from cli.declared import fleet_to_plan

if TYPE_CHECKING:
    from solvers.planning.problem import Problem

SHOWN = (
    "round", "ms", "cpu_ms", "started", "stopped", "resized", "untouched_moved", "way", "steps", "cpu_seconds", "cost",
    "churn", "value", "copies", "handed_over", "handed_share", "unserved", "drift",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=1000, help="GPUs; default 1000")
    parser.add_argument("--services", metavar="N", type=whole(1), default=300, help="services; default 300")
    add_family_argument(parser)
    file = "the fleet of these manifests, in place of a family"
    completes(parser.add_argument("-f", "--file", metavar="FILE", help=file), "files")
    parser.add_argument("--seed", metavar="K", type=whole(0), default=0, help="default 0")
    parser.add_argument(
        "--changed", metavar="P", type=part, default=0.05, help="share of the services that change; default 0.05"
    )
    parser.add_argument("--rounds", metavar="R", type=whole(1), default=20, help="successive changes; default 20")
    parser.add_argument("--no-cold", action="store_true", help="leave out the cold plan at the end")
    everything = (
        "move all rates by up to this share; compare a repair, a plan from nothing, and a search from what runs"
    )
    parser.add_argument("--all-rates", metavar="P", type=part, help=everything)
    add_plan_arguments(parser)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each round, or for each way to follow all rates at once."""
    from benchmarks.families import family

    problem = fleet_to_plan(args.file) if args.file else family(args.family, args.gpus, args.services, args.seed)
    return _measure_some(problem, args, say) if args.all_rates is None else _measure_all(problem, args, say)


def _measure_all(problem: Problem, args: argparse.Namespace, say: Say) -> dict[str, Any]:
    from benchmarks.moved_fleet import SearchLimits, compare, running_plan

    limits = SearchLimits(args.seconds, args.work, args.seed)
    say("the plan that runs")
    plan = running_plan(problem, limits)
    assert plan.certificate
    say(f"  cost {plan.certificate.cost.total:,.2f}, {len(plan.instances)} instances; now all rates move")
    rows = []
    for row in compare(problem, plan, args.all_rates, limits):
        rows.append(row)
        say(f"  {row['way']}: {row['value']:,.2f} over the horizon, {row['handed_over']} handed over")
    return {"rows": rows, "base_cost": plan.certificate.cost.total}


def _measure_some(problem: Problem, args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Changes some rates round by round; the end is compared with a cold plan of as much work as the first."""
    from benchmarks.replanning import percentiles, run_rounds
    from solvers.planning.replan import Replanner
    from solvers.planning.solve import SolveBudget, solve

    size = {"gpus": sum(node.gpu_count for node in problem.nodes.values()), "services": len(problem.services)}
    say(f"the plan to start from: {size['gpus']} GPUs, {size['services']} services, {args.seconds:g} s")
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
        rows.append(size | row | {"drift": None})
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
