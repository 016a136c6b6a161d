"""Measures how good plans are after how long: families of problems, each seed planned in a fresh process."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cli.bench.plan_arguments import Say, add_plan_arguments, add_size_arguments, families
from cli.bench.timed_plan import time_plan
from cli.charts import refuse_without_matplotlib
from cli.exits import Failed

SHOWN = ("family", "seed", "first_seconds", "first_gap", "seconds", "cost", "bound", "gap", "peak_mb", "unserved")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_size_arguments(parser)
    add_plan_arguments(parser)
    parser.add_argument("--simulate", action="store_true", help="also have the judge simulate every instance")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the gap over time")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each family and seed, and medians of those that serve everything."""
    from benchmarks.families import family
    from benchmarks.rows import medians, row
    from benchmarks.timed import TimedRun

    if args.plot:
        refuse_undrawable(Path(args.plot))
    rows: list[dict[str, Any]] = []
    traces: dict[str, list[dict[str, Any]]] = {}
    for name in families(args.family):
        for seed in range(args.seeds):
            say(f"family {name}, seed {seed}: {args.gpus} GPUs, {args.services} services")
            problem = family(name, args.gpus, args.services, seed)
            order = TimedRun("ours", args.seconds, args.work, seed, args.simulate)
            lines, peak_mb = time_plan(problem, order, lambda line: say(progress(line)))
            size = {"gpus": args.gpus, "services": args.services, "family": name, "seed": seed}
            rows.append(size | row(lines, peak_mb, args.seconds))
            traces[f"{name} {seed}"] = lines
    if args.plot:
        from benchmarks.plots import gap_over_time

        gap_over_time(traces, f"{args.gpus} GPUs, {args.services} services", Path(args.plot))
        say(f"drawn: {args.plot}")
    by_family = {name: medians([row for row in rows if row["family"] == name]) for name in families(args.family)}
    return {"rows": rows, "medians": by_family}


def progress(line: dict[str, Any]) -> str:
    """Spells a message of the timed plan for a person."""
    if line["what"] == "better":
        bound = "no bound yet" if line["bound"] is None else f"bound {line['bound']:,.2f}"
        return f"  {line['at']:7.2f} s  cost {line['cost']:,.2f}, {bound}  ({line['method']})"
    if line["what"] == "judged":
        wrong = f"; {len(line['violations'])} rules broken: {line['violations'][0]}" if line["violations"] else ""
        return f"  judged: cost {line['cost']:,.2f}, {line['unserved']} unserved{wrong}"
    return f"  {line['what']}" + (f" after {line['at']:.2f} s" if "at" in line else "")


def refuse_undrawable(file: Path) -> None:
    """Refuses a plot that cannot be drawn before an hour of measuring, not after it."""
    if file.suffix != ".png" or not file.parent.is_dir():
        raise Failed(f"--plot {file} is not allowed: name a .png file in an existing folder")
    refuse_without_matplotlib("--plot")
