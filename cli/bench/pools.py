"""Measures what pools cost at equal attainment: by Karpenter's rule, by ours, and in hindsight."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.manifests.model import Kind
from cli import declared
from cli.arguments import add_file_arguments, completes, not_negative, positive, whole
from cli.bench.plan_arguments import Say
from cli.exits import Failed
from cli.load_file import read_simulated_rates
from simulation.limits import LEAST_HOURS, LOADS, MOST_HOURS

SHOWN = (
    "row", "rented_per_hour", "ours_of_it", "attained", "missed", "headroom", "orders", "wasted_minutes",
    "held_per_hour",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_arguments(parser)
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--load", choices=LOADS, default="wave", help="the load of all services; default wave")
    data = "folder of recordings whose course the load follows: *-trace.csv by client, or *.jsonl by request"
    completes(load.add_argument("--data", metavar="DIR", type=Path, help=data), "files")
    since = "with --data: begin at this hour of the recordings; default 0"
    parser.add_argument("--from-hour", metavar="H", type=not_negative, help=since)
    parser.add_argument("--hours", metavar="H", type=positive, default=6.0, help="of virtual time; default 6")
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="of load and searches; default 0")
    after = "minutes in which nothing changes on a node until Karpenter's rule gives it back; default 1"
    parser.add_argument("--consolidate-after", metavar="MINUTES", type=not_negative, default=1.0, help=after)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each rule, and hindsight."""
    from simulation.measure.loads import make_load
    from simulation.measure.recorded import RecordingRefused, read_recorded
    from simulation.measure.renting_rows import RentingCase, compare

    if not LEAST_HOURS <= args.hours <= MOST_HOURS:
        raise Failed(f"--hours {args.hours:g} is not allowed: {LEAST_HOURS:g} to {MOST_HOURS}")
    if args.data is None and args.from_hour is not None:
        raise Failed("--from-hour needs --data, whose recordings it is an hour of")
    world = declared.world(args)
    if not world.of(Kind.POOL) or not world.of(Kind.NODE):
        raise Failed("the files must declare a Pool and a Node; examples/pools.yaml has both")
    rates = read_simulated_rates(world)
    try:
        shapes = (
            make_load(args.load, rates, args.hours, args.seed)
            if args.data is None
            else read_recorded(args.data, rates, args.from_hour or 0.0, args.hours)
        )
    except (RecordingRefused, OSError) as error:
        raise Failed(str(error)) from error
    case = RentingCase(world, shapes, args.hours, args.seed, 60 * args.consolidate_after)
    return {
        "rows": compare(case, say),
        "simulated": "money is that of rented nodes alone; ours_of_it divides ours by the row's",
    }
