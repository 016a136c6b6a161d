"""Compares the cost of plans for language models: ours, Melange's, one GPU type's, and prefill and decode apart."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cli.arguments import positive, whole
from cli.bench.plan_arguments import Say
from cli.exits import Failed

LEVELS = ("tight", "middle", "loose")
SHOWN = ("level", "load", "planner", "cost", "worst", "missed", "heldCost", "ratio", "gap", "gpus")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", required=True, help="folder that holds the published files")
    parser.add_argument("--level", choices=LEVELS, action="append", help="promises of this level only; may be repeated")
    loads = "times the trace's rate; may be repeated; default 0.5, 2 and 8"
    parser.add_argument("--load", metavar="X", type=positive, action="append", help=loads)
    requests = "requests simulated for each group of servers; default 40000"
    parser.add_argument("--requests", metavar="N", type=whole(1000, 1_000_000), default=40_000, help=requests)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each planner, level and load, with the fits and promises that they share."""
    from lab.data.missing_data import DataMissing
    from lab.llm_fleet import compared

    try:
        return compared.run(Path(args.data), args.load or compared.LOADS, args.level or LEVELS, args.requests, say)
    except DataMissing as missing:
        raise Failed(str(missing)) from None
