"""The argument that names a planner."""

from __future__ import annotations

import argparse

PLANNER = (
    "plan with this planner instead of the policy's: joint chooses everything together; hetsev, mudi, inss, morak and"
    " oltunes follow published systems"
)
COMPARED = (
    "baselines to compare with: Kubernetes, one instance a GPU, of a random type (hpa) or the cheapest (hpa-cheapest);"
    " reserve-and-pack; melange follows a paper with a service a GPU; one instance a GPU on each service's cheapest"
    " type (one-per-gpu); everything on the largest type (largest). The lab adds gpulet, gslice, igniter, orion and"
    " muxflow"
)


def add_planner_argument(parser: argparse.ArgumentParser, *, baselines: bool = False) -> None:
    parser.add_argument(
        "--planner",
        metavar="NAME",
        type=planner_or_baseline if baselines else _planner,
        help=f"{PLANNER}; {COMPARED}" if baselines else PLANNER,
    )


def _planner(name: str) -> str:
    from solvers.planners.names import PLANNERS  # a client without the solvers has the flag, too

    return _one_of(name, PLANNERS)


def planner_or_baseline(name: str) -> str:
    """Returns the name of a planner, or of one to compare with."""
    from solvers.planners.names import BASELINES, PLANNERS, added_planners

    return _one_of(name, (*PLANNERS, *BASELINES, *sorted(added_planners().names)))


def _one_of(name: str, allowed: tuple[str, ...]) -> str:
    if name not in allowed:
        raise argparse.ArgumentTypeError(f"planner {name!r} is unknown; allowed: {', '.join(allowed)}")
    return name
