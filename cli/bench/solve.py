"""Measures how good plans are after how long: fleets of a family or of files, each planned in a fresh process."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.bench import other_planners
from cli.bench.fleets import BenchFleet, fleets, refuse_mixed
from cli.bench.plan_arguments import Say, add_fleet_arguments, add_plan_arguments, add_size_arguments
from cli.bench.timed_plan import time_plan
from cli.exits import Failed
from cli.views.charts import refuse_without_matplotlib

if TYPE_CHECKING:
    from benchmarks.altered import Pricing

SHOWN = (
    "family", "file", "seed", "first_seconds", "complete_seconds", "first_gap", "seconds", "cpu_seconds", "cost",
    "bound", "gap", "proved", "blind_cost", "saving", "peak_mb", "unserved",
)  # fmt: skip
PRICINGS: tuple[Pricing, ...] = ("gpu", "node", "share")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_size_arguments(parser)
    add_fleet_arguments(parser)
    add_plan_arguments(parser)
    parser.add_argument("--pricing", choices=PRICINGS, help="in place of the policy's pricing")
    blind = "also plan as if each GPU were paid by itself, and bill that plan by node; takes twice the time"
    parser.add_argument("--blind", action="store_true", help=blind)
    parser.add_argument("--simulate", action="store_true", help="also have the judge simulate every instance")
    others = "planners, separated by commas, whose plans of each fleet are judged and compared with ours"
    parser.add_argument("--planners", metavar="NAMES", type=other_planners.planners, default=(), help=others)
    parser.add_argument("--plot", metavar="FILE.png", help="draw the gap over time")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each fleet, and by group the medians of those that serve everything."""
    from benchmarks.rows import medians, summary

    refuse_mixed(args)
    if args.plot:
        refuse_undrawable(Path(args.plot))
    rows: list[dict[str, Any]] = []
    groups: dict[str, list[dict[str, Any]]] = {}
    traces: dict[str, list[dict[str, Any]]] = {}
    for drawn in fleets(args):
        fleet = _set_pricing(drawn, args.pricing)
        columns = fleet.columns
        say(f"{fleet.name}: {columns['gpus']} GPUs, {columns['services']} services")
        traces[fleet.name], figures = _time_plan(fleet, args, lambda line: say(progress(line)))
        if args.planners:
            figures["planners"] = other_planners.compare(fleet.problem, args.planners, figures["cost"])
            for name, known in figures["planners"].items():
                say(other_planners.spell(name, known))
        rows.append(columns | figures)
        groups.setdefault(fleet.group, []).append(rows[-1])
    if args.plot:
        from benchmarks.plots import gap_over_time

        sizes = sorted({(row["gpus"], row["services"]) for row in rows})
        title = f"{sizes[0][0]} GPUs, {sizes[0][1]} services" if len(sizes) == 1 else f"{len(rows)} fleets"
        gap_over_time(traces, title, Path(args.plot))
        say(f"drawn: {args.plot}")
    found = {group: medians(members) for group, members in groups.items()}
    for group, figures in found.items():
        say(f"{group}: {summary(figures)}")
    return {"rows": rows, "medians": found}


def _set_pricing(fleet: BenchFleet, pricing: Pricing | None) -> BenchFleet:
    from benchmarks.altered import set_pricing

    return fleet if pricing is None else replace(fleet, problem=set_pricing(fleet.problem, pricing))


def _time_plan(
    fleet: BenchFleet, args: argparse.Namespace, on_message: Callable[[dict[str, Any]], None]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the messages of the timed plan and its figures, those of a blind plan included if asked for."""
    from benchmarks.rows import bill_blind, row
    from benchmarks.timed import TimedRun, plan_blindly, plan_jointly

    if args.blind and not any(node.pricing == "node" for node in fleet.problem.nodes.values()):
        raise Failed(f"--blind bills by node, and no node of {fleet.name} is billed whole: add --pricing node")
    order = TimedRun(plan_jointly, args.seconds, args.work, fleet.seed, args.simulate)
    lines, peak_mb = time_plan(fleet.problem, order, on_message)
    found = row(lines, peak_mb, args.seconds)
    if args.blind:
        blind_lines, blind_mb = time_plan(fleet.problem, replace(order, planner=plan_blindly), on_message)
        found |= bill_blind(found, row(blind_lines, blind_mb, args.seconds))
    return lines, found


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
