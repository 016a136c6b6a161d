"""The argument that names a planner."""

from __future__ import annotations

import argparse

from solvers.planners.names import PLANNERS


def add_planner_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--planner",
        choices=PLANNERS,
        help="who plans, instead of the policy's planner: all at once (joint), or a published system's method",
    )
