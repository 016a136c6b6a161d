"""`gpuwright planner`: decides for the fleet in the database of DATABASE_URL, or stands by."""

from __future__ import annotations

import argparse
import signal
import threading
from types import FrameType

from cli import exits
from cli.exits import Failed

EPILOG = """\
Several may run: the one that holds the lease plans the whole fleet, the others take over when it falls silent.
What may change is said by the Policy's mode (advisory, approve, auto). Everything else is set in the environment:
DATABASE_URL, GPUWRIGHT_LEASE_SECONDS, GPUWRIGHT_SOLVE_SECONDS, GPUWRIGHT_SOLVER_CORES, GPUWRIGHT_PLANNER_METRICS_PORT.

Examples:
  DATABASE_URL=postgresql://gpuwright@db/gpuwright gpuwright planner
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from app.settings import SettingsError, from_environment
    from app.store.database import libpq_url
    from cli.verbs.serve import refuse_unknown_schema, write_logs

    try:
        settings = from_environment()
        if not settings.database_url:
            raise Failed("DATABASE_URL is not set; set it, or run `gpuwright up`, which brings a Postgres along")
        libpq_url(settings.database_url)
    except SettingsError as error:
        raise Failed(str(error)) from error
    write_logs(settings)
    refuse_unknown_schema(settings)
    from app.planner import PlannerProcess

    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    process = PlannerProcess(settings)
    process.start()
    ended.wait()
    process.stop()
    return exits.OK
