"""Measures what gpuwright saves on simulated fleets: prices beside what is unserved and late, for five policies."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say

SHOWN = (
    "policy", "price_per_hour", "gpus", "unserved_%", "late_%", "slos_kept_%", "ours_saves_%", "least_%", "most_%",
)  # fmt: skip
SEEDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    seeds = f"fleets, of seeds 0 to K - 1; default {SEEDS}"
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=SEEDS, help=seeds)
    parser.add_argument("--map", metavar="FILE.svg", type=Path, help="draw the middle fleet before and after")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each policy, and what was compared."""
    from cli.bench import saved_fleets

    say("simulated: no GPU is used")
    fleets = saved_fleets.compare_fleets(args.seeds, say)
    if args.map:
        args.map.write_text(saved_fleets.draw_middle(fleets), encoding="utf-8")
        say(f"drawn: {args.map}")
    about = (
        f"{args.seeds} fleets of {saved_fleets.SERVICES} services; each policy has as many GPUs as it wants and the"
        " same SLOs; prices and GPUs are medians; ours_saves is the median of each fleet's own saving, so it need not"
        " follow from the prices of its row; least and most are of these savings"
    )
    return {"rows": saved_fleets.summarise(fleets), "simulated": about}
