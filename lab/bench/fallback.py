"""Measures HetSev's greedy beside a running plan: from risen rates to a judged plan, in its own warm process."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cli.arguments import part, positive, whole
from cli.bench.plan_arguments import Say, add_family_argument, add_plan_arguments

if TYPE_CHECKING:
    from solvers.planning.plan import Plan
    from solvers.planning.problem import Problem

SHOWN = ("round", "ms", "judge_ms", "started", "moved", "lacked", "left", "violations", "cost")
ANSWER_SECONDS = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=1000, help="GPUs; default 1000")
    parser.add_argument("--services", metavar="N", type=whole(1), default=300, help="services; default 300")
    add_family_argument(parser)
    parser.add_argument("--seed", metavar="K", type=whole(0), default=0, help="default 0")
    parser.add_argument("--changed", metavar="P", type=part, default=0.05, help="share of services; default 0.05")
    parser.add_argument("--rise", metavar="X", type=positive, default=1.3, help="times their rates; default 1.3")
    parser.add_argument("--rounds", metavar="R", type=whole(1), default=20, help="rises, each alone; default 20")
    add_plan_arguments(parser)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each round: every one starts from the same running plan."""
    from app.control.solve.adding import AddingProcess
    from benchmarks.families import family
    from solvers.planning.problem import RunningState
    from solvers.planning.solve import SolveBudget, solve

    problem = family(args.family, args.gpus, args.services, args.seed)
    say(f"the plan to start from: {args.gpus} GPUs, {args.services} services, {args.seconds:g} s")
    plan = solve(problem, SolveBudget(args.seconds, args.work, args.seed))
    assert plan.certificate
    running = replace(problem, state=RunningState(None, plan.instances))
    process = AddingProcess(nice=0, cores=1)
    try:
        process.process.start().result()
        began = perf_counter()
        process.prepare(running)
        process.add(running, ANSWER_SECONDS)
        prepared_ms = (perf_counter() - began) * 1000
        say(f"  cost {plan.certificate.cost.total:,.2f}; read, judged and ready after {prepared_ms:.0f} ms")
        rows = []
        for number in range(args.rounds):
            rows.append({"round": number + 1, **_round(process, running, _risen(running, args, number))})
            say(f"  round {number + 1}: {rows[-1]['ms']:.1f} ms, {rows[-1]['started']} started")
    finally:
        process.close()
    times = sorted(row["ms"] for row in rows)
    return {
        "rows": rows,
        "gpus": args.gpus,
        "services": args.services,
        "first_ms": rows[0]["ms"],
        "median_ms": median(times),
        "worst_ms": times[-1],
        "worst_judge_ms": max(row["judge_ms"] for row in rows),
        "prepared_ms": prepared_ms,
        "base_cost": plan.certificate.cost.total,
        "moved": sum(row["moved"] for row in rows),
        "violations": sum(row["violations"] for row in rows),
    }


def _round(process: Any, running: Problem, rates: Mapping[str, float]) -> dict[str, Any]:
    """Asks for a plan at these rates, and judges it again here as the planner does."""
    from solvers.planning.judge import judge
    from solvers.planning.judge.services import AVAILABILITY_RULES
    from solvers.planning.search.promise import keep

    then = running.change_rates(rates)
    began = perf_counter()
    answer = process.add(then, ANSWER_SECONDS)
    took_ms = (perf_counter() - began) * 1000
    plan: Plan | None = answer.plan
    if plan is None:
        raise RuntimeError(f"the greedy gave no plan: {answer.message}")
    began = perf_counter()
    verdict = judge(then, plan, simulate=False, keeps=keep)
    judge_ms = (perf_counter() - began) * 1000
    changes = verdict.changes
    return {
        "ms": took_ms,
        "search_ms": answer.seconds * 1000,
        "judge_ms": judge_ms,
        "started": changes.start,
        "moved": changes.stop + changes.move + changes.resize,
        "lacked": _lack(running, rates),
        "left": sum(entry.rate_per_second for entry in plan.unserved),
        "violations": sum(found.rule not in AVAILABILITY_RULES for found in verdict.violations),
        "cost": verdict.cost.total,
    }


def _lack(running: Problem, rates: Mapping[str, float]) -> float:
    """Returns the rate that rose, which what runs was not planned for."""
    return sum(rate - running.services[name].rate_per_second for name, rate in rates.items())


def _risen(running: Problem, args: argparse.Namespace, number: int) -> dict[str, float]:
    """Returns the rates of the services that rise in a round, drawn by the seed."""
    import numpy as np

    names: Collection[str] = sorted(running.services)
    count = max(1, round(args.changed * len(names)))
    picked = np.random.default_rng([args.seed, number]).choice(len(names), size=count, replace=False)
    risen = {name for at, name in enumerate(names) if at in set(picked.tolist())}
    return {name: args.rise * running.services[name].rate_per_second for name in sorted(risen)}
