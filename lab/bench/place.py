"""Compares online placement with FGD and best fit, on the openb trace and on mixes derived from it."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say
from cli.exits import Failed

SHOWN = ("mix", "seed", "arrivals", "ours", "oursHoldingBack", "fgd", "bestfit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", required=True, help="folder that holds the published files")
    mixes = "also compare on nine mixes of pods derived from the list, with K seeds; default 0"
    parser.add_argument("--mixes", metavar="K", type=whole(0, 100), default=0, help=mixes)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns the share of GPUs that each policy allocates."""
    from lab.data.missing_data import DataMissing
    from lab.published import openb

    say(f"reading {args.data}")
    try:
        found: dict[str, Any] = openb.run(args.data, args.mixes)
    except DataMissing as missing:
        raise Failed(str(missing)) from None
    return found
