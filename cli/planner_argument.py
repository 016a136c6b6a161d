"""The argument that names a planner."""

from __future__ import annotations

import argparse

from solvers.planners.names import BASELINES, PLANNERS

WHO = "who plans, instead of the policy's planner: all at once (joint), or a published system's method"
COMPARED = "to compare with: Kubernetes, one instance a GPU, of a random type (hpa) or the cheapest (hpa-cheapest)"


def add_planner_argument(parser: argparse.ArgumentParser, *, baselines: bool = False) -> None:
    parser.add_argument(
        "--planner",
        choices=(*PLANNERS, *BASELINES) if baselines else PLANNERS,
        help=f"{WHO}; {COMPARED}" if baselines else WHO,
    )
