"""The arguments that say how fast simulated GPUs really are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cli.arguments import completes, whole
from cli.exits import Failed

if TYPE_CHECKING:
    from simulation.limits import ProfilesName
    from simulation.truths import TruthOrder

TRUTHS = ("planner", "made", "measured")
PROFILES = ("declared", "measured", "complete")


def add_truth_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--truth",
        choices=TRUTHS,
        default="planner",
        help="how fast GPUs really are: as the profiles say (planner, the default), by a physics of its own that a "
        "seed draws (made), or the same with the shapes of published measurements (measured)",
    )
    parser.add_argument("--truth-seed", metavar="K", type=whole(0), default=0, help="which draw; default 0")
    data = "folder of published measurements, for --truth measured"
    completes(parser.add_argument("--data", metavar="DIR", help=data), "files")


def add_profiles_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profiles",
        choices=PROFILES,
        default="declared",
        help="what the planner believes of a truth that is not its own: the files (declared, the default), at most 16 "
        "measurements of each model on each kind of GPU and some beside neighbours (measured), or every time and many "
        "neighbours (complete)",
    )


def truth_order(args: argparse.Namespace) -> TruthOrder:
    """Returns the truth that was asked for; refuses one that cannot be."""
    from simulation.truths import TruthOrder

    profiles: ProfilesName = getattr(args, "profiles", "declared")
    if args.truth == "planner":
        if profiles != "declared":
            raise Failed(f"--profiles {profiles} needs --truth made or measured: with planner, profiles are the truth")
        if args.truth_seed:
            raise Failed(f"--truth-seed {args.truth_seed} needs --truth made or measured: planner draws nothing")
    if args.data and args.truth != "measured":
        raise Failed(f"--data needs --truth measured: {args.truth} reads no measurements")
    if args.truth == "planner":
        return TruthOrder()
    if args.truth == "made":
        return TruthOrder("made", args.truth_seed, None, profiles)
    if not args.data:
        raise Failed("--truth measured needs --data: the folder that holds the published measurements")
    from simulation.truth.measured import MeasuredShapes, MeasurementsMissing

    try:
        MeasuredShapes.read(Path(args.data), args.truth_seed)
    except MeasurementsMissing as missing:
        raise Failed(str(missing)) from None
    return TruthOrder("measured", args.truth_seed, Path(args.data).resolve(), profiles)
