"""The ledger brought up to date, portion after portion; any number of replicas may be at it, and any may be killed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sqlalchemy import Connection

from app.ledger import accounting, booking
from app.store.database import partitions
from app.store.database.database import Database
from app.store.money import allocations


class Portions(Protocol):
    """The size of a portion, and the pauses between portions."""

    def portions(self) -> Iterable[int]: ...


def bring_up_to_date(database: Database, pace: Portions) -> int:
    """Account for all that is final; how many nodes had something, a node of many portions as often."""
    database.write(booking.book_missing)
    make_room(database)
    total = 0
    for _ in pace.portions():
        count = database.write(_portion, repeatable=True)  # done twice, the second finds it done
        total += count
        if not count:
            break
    return total


def make_room(database: Database) -> None:
    """Partitions for all that may be written now: what is told late is about months that are long over."""
    months = database.read(allocations.months_due)
    if months:
        database.write(lambda connection: partitions.ensure(connection, months, daily=()))


def _portion(connection: Connection) -> int:
    return accounting.account(connection)
