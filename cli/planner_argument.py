"""The argument that names a planner."""

from __future__ import annotations

import argparse

from solvers.planners.names import BASELINES, PLANNERS

PLANNER = "not the policy's planner: joint chooses everything together, hetsev and mudi follow published systems"
COMPARED = "to compare with: Kubernetes, one instance a GPU, of a random type (hpa) or the cheapest (hpa-cheapest)"


def add_planner_argument(parser: argparse.ArgumentParser, *, baselines: bool = False) -> None:
    parser.add_argument(
        "--planner",
        choices=(*PLANNERS, *BASELINES) if baselines else PLANNERS,
        help=f"{PLANNER}; {COMPARED}" if baselines else PLANNER,
    )
