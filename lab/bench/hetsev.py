"""Compares the cost of our plan with HetSev's greedy, on the same problem."""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say, add_plan_arguments, add_size_arguments, families
from cli.bench.solve import progress
from cli.bench.timed_plan import time_plan

SHOWN = ("family", "seed", "seconds", "cost", "hetsev_seconds", "hetsev_cost", "ratio", "unserved", "hetsev_unserved")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_size_arguments(parser)
    add_plan_arguments(parser)
    parser.add_argument(
        "--fleet", metavar="K", type=whole(1), default=4, help="GPUs of every type times this, for both; default 4"
    )


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each seed; the ratio is ours over HetSev's, of rows where both serve everything."""
    from benchmarks.families import family, multiply_gpus
    from benchmarks.rows import row
    from benchmarks.timed import TimedRun, plan_jointly
    from lab.published.timed_greedy import plan_greedily

    rows: list[dict[str, Any]] = []
    for name in families(args.family):
        for seed in range(args.seeds):
            say(f"family {name}, seed {seed}: {args.gpus} GPUs x {args.fleet}, {args.services} services")
            problem = multiply_gpus(family(name, args.gpus, args.services, seed), args.fleet)
            found = {}
            for planner_name, planner in (("hetsev", plan_greedily), ("ours", plan_jointly)):
                order = TimedRun(planner, args.seconds, args.work, seed)
                lines, peak_mb = time_plan(problem, order, lambda line: say(progress(line)))
                found[planner_name] = row(lines, peak_mb, args.seconds)
            ours, hetsev = found["ours"], found["hetsev"]
            whole = not any(row["unserved"] or row["violations"] for row in found.values())
            rows.append(
                {
                    "gpus": args.gpus,
                    "services": args.services,
                    "family": name,
                    "seed": seed,
                    "seconds": ours["seconds"],
                    "cost": ours["cost"],
                    "hetsev_seconds": hetsev["seconds"],
                    "hetsev_cost": hetsev["cost"],
                    "ratio": ours["cost"] / hetsev["cost"] if whole else None,
                    "unserved": ours["unserved"],
                    "hetsev_unserved": hetsev["unserved"],
                    "violations": ours["violations"] + hetsev["violations"],
                }
            )
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    return {"rows": rows, "ratio": median(ratios) if ratios else None, "counted": len(ratios)}
