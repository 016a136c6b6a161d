"""Reports when every service of a fleet that was just started is served, and which ones wait until then."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import Settings
    from cli.up.children import Say

NAMED_WAITING = 3  # services that the line about those that still wait names


def spell_waiting(waiting: tuple[str, ...], services: int) -> str:
    """Counts the services that wait, names the first of them, and says where the reason is."""
    more = f" and {len(waiting) - NAMED_WAITING} more" if len(waiting) > NAMED_WAITING else ""
    names = f"{', '.join(waiting[:NAMED_WAITING])}{more}"
    return f"{len(waiting)} of {services} services still wait: {names}; why: gpuwright explain plan"


def await_served(settings: Settings, say: Say, began: float, ended: threading.Event) -> None:
    """Reports once that every service is served, and after which time."""
    from app.store.database.database import Database, Unavailable
    from simulation.progress import read_progress

    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    reported_seconds = 0.0
    try:
        while not ended.wait(1.0):
            try:
                found = database.read(read_progress)
            except Unavailable:
                continue
            seconds = time.monotonic() - began
            if found.services and not found.waiting:
                say(f"all {found.services} services are served after {seconds:.0f} s, by {found.copies} instances")
                return
            if seconds > reported_seconds + 60:
                reported_seconds = seconds
                say(f"after {seconds:.0f} s {spell_waiting(found.waiting, found.services)}")
    finally:
        database.close()
