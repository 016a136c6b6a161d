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
    " type (one-per-gpu); two time slices a GPU on nodes that Karpenter rents (time-sliced); everything on the largest"
    " type (largest)"
)
ADDED = "the lab adds gpulet, gslice, igniter, orion and muxflow"


def add_planner_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the planners that a policy may name."""
    parser.add_argument("--planner", metavar="NAME", type=_planner, help=PLANNER)


def add_compared_argument(parser: argparse.ArgumentParser) -> None:
    """Adds these and the baselines that a server knows."""
    parser.add_argument("--planner", metavar="NAME", type=_planner_or_baseline, help=f"{PLANNER}; {COMPARED}")


def add_any_planner_argument(parser: argparse.ArgumentParser) -> None:
    """Adds all that are installed here."""
    parser.add_argument("--planner", metavar="NAME", type=any_planner, help=f"{PLANNER}; {COMPARED}; {ADDED}")


def _planner(name: str) -> str:
    from solvers.planners.names import PLANNERS  # a client without the solvers has the flag, too

    return _one_of(name, PLANNERS)


def _planner_or_baseline(name: str) -> str:
    from solvers.planners.names import BASELINES, PLANNERS

    return _one_of(name, (*PLANNERS, *BASELINES))


def any_planner(name: str) -> str:
    """Returns the name of a planner, or of a baseline, of the lab's, too, where it is installed."""
    from solvers.planners.names import BASELINES, PLANNERS, find_added_planners

    return _one_of(name, (*PLANNERS, *BASELINES, *sorted(find_added_planners().names)))


def _one_of(name: str, allowed: tuple[str, ...]) -> str:
    if name not in allowed:
        raise argparse.ArgumentTypeError(f"planner {name!r} is unknown; allowed: {', '.join(allowed)}")
    return name
