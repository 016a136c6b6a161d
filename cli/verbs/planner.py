"""`gpuwright planner`: decides for the fleet in the database of DATABASE_URL, or waits for the lease."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli.leading import LeadingProcess, read_settings, run_until_ended

if TYPE_CHECKING:
    from app.settings import Settings

EPILOG = """\
Several may run: the one that holds the lease plans the whole fleet, the others take over when it falls silent.
While the database is away it waits, also at its start, and says so.
The Policy's mode sets what may change (advisory, approve, auto). Everything else is set in the environment:
DATABASE_URL, GPUWRIGHT_LEASE_SECONDS, GPUWRIGHT_SOLVE_SECONDS, GPUWRIGHT_SOLVER_CORES, GPUWRIGHT_PLANNER_METRICS_PORT.

Examples:
  DATABASE_URL=postgresql://gpuwright@db/gpuwright gpuwright planner
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    settings = read_settings("DATABASE_URL is not set; set it, or run `gpuwright up`, which brings a Postgres along")
    return run_until_ended(settings, _make)


def _make(settings: Settings) -> LeadingProcess:
    from app.planner import PlannerProcess  # once the database answers: it takes a while

    return PlannerProcess(settings)
