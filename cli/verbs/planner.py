"""`gpuwright planner`: decides for the fleet in the database of DATABASE_URL, or waits for the lease."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

from cli import exits
from cli.exits import Failed

if TYPE_CHECKING:
    from app.settings import Settings

RETRY_SECONDS = 2.0  # after the database did not answer
WAITS_PER_WARNING = 15  # the log has one warning for so many waits

log = logging.getLogger(__name__)

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
    from app.settings import SettingsError, from_environment
    from app.store.database.urls import libpq_url
    from cli.verbs.serve import write_logs

    try:
        settings = from_environment()
        if not settings.database_url:
            raise Failed("DATABASE_URL is not set; set it, or run `gpuwright up`, which brings a Postgres along")
        libpq_url(settings.database_url)
    except SettingsError as error:
        raise Failed(str(error)) from error
    write_logs(settings)
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if not answers(settings, ended):
        return exits.OK
    from app.planner import PlannerProcess

    process = PlannerProcess(settings)
    process.start()
    ended.wait()
    process.stop()
    return exits.OK


def answers(settings: Settings, ended: threading.Event) -> bool:
    """Wait for the database; False where we are ended before it comes. A schema that we do not know is refused."""
    from app.store.database import schema
    from app.store.database.database import Database, Unavailable
    from cli.verbs.serve import cause_of

    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    waits = 0
    try:
        while not ended.is_set():
            try:
                database.read(schema.require)
            except Unavailable as error:
                if waits % WAITS_PER_WARNING == 0:
                    log.warning("database_away", extra={"error": str(error), "cause": cause_of(error)})
                waits += 1
                ended.wait(RETRY_SECONDS)
            except schema.SchemaError as error:
                raise Failed(str(error), exits.REFUSED) from error
            else:
                if waits:
                    log.info("database_back")
                return True
        return False
    finally:
        database.close()
