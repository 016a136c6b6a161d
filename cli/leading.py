"""Runs a process that leads, or waits for the lease, by the database of DATABASE_URL until it is asked to end."""

from __future__ import annotations

import _thread
import logging
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from cli import exits
from cli.exits import Failed
from cli.serving import cause_of, write_logs

if TYPE_CHECKING:
    from app.settings import Settings

RETRY_SECONDS = 2.0  # after the database did not answer
WAITS_PER_WARNING = 15  # the log has one warning for so many waits

log = logging.getLogger(__name__)


class LeadingProcess(Protocol):
    """A process that leads from `start`, or waits for the lease, until `stop`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def read_settings(missing: str) -> Settings:
    """Returns the environment; Failed says `missing` where it names no database."""
    from app.settings import SettingsError, read_environment
    from app.store.database.urls import libpq_url

    try:
        settings = read_environment()
        if not settings.database_url:
            raise Failed(missing)
        libpq_url(settings.database_url)
    except SettingsError as error:
        raise Failed(str(error)) from error
    return settings


def run_until_ended(settings: Settings, make: Callable[[Settings], LeadingProcess]) -> int:
    """Makes the process once the database answers, and ends it on SIGINT or SIGTERM."""
    write_logs(settings)
    ended = threading.Event()
    set_at_signals(ended)
    if not _wait_for_database(settings, ended):
        return exits.OK
    process = make(settings)
    process.start()
    ended.wait()
    process.stop()
    return exits.OK


def set_at_signals(ended: threading.Event) -> None:
    """Sets the event on SIGINT or SIGTERM: in a thread of its own, as this one may hold the lock that setting takes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _thread.start_new_thread(ended.set, ()))


def _wait_for_database(settings: Settings, ended: threading.Event) -> bool:
    """Waits for the database; False where we are ended before it comes. A schema that we do not know is refused."""
    from app.store.database import schema
    from app.store.database.database import Database, Unavailable

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
