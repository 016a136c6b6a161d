"""Ends usage by rule, a few nodes in a transaction. A node that fails is named and left out; the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection

from app.ledger.keeping import Portions
from app.store.database import turns
from app.store.database.database import Database, Unavailable
from app.store.money import closing

NODES_AT_ONCE = 20
ROWS_AT_ONCE = 2000

log = logging.getLogger(__name__)


def end_usage(database: Database, pace: Portions) -> Sequence[str]:
    """Ends what no agent will end, and lets go on what agents list again; returns the nodes for which it failed."""
    failed: list[str] = []
    names = database.read(closing.nodes)
    for at in pace.portions(range(0, len(names), NODES_AT_ONCE)):
        some = names[at : at + NODES_AT_ONCE]
        try:
            _end(database, some)
        except Exception as error:
            failed += _one_by_one(database, some, error)
    return failed


def _one_by_one(database: Database, nodes: Sequence[str], error: Exception) -> list[str]:
    """Returns the nodes that fail by themselves; raises if the database is away."""
    failed: list[str] = []
    for node in nodes:
        try:
            _end(database, [node])
        except Unavailable:
            if len(failed) == 1:  # the second: not because of one node
                raise
            failed.append(node)
        except Exception:
            failed.append(node)
    log.error("usage_not_ended", extra={"nodes": failed}, exc_info=error)
    return failed


def _end(database: Database, nodes: Sequence[str]) -> None:
    _repeat(database, partial(closing.end_lost, of=nodes, limit=ROWS_AT_ONCE))
    _once(database, partial(_note_missing, of=nodes))
    _repeat(database, partial(closing.end_missing, of=nodes, limit=ROWS_AT_ONCE))
    _once(database, partial(closing.go_on, of=nodes))


def _note_missing(connection: Connection, of: Sequence[str]) -> int:
    closing.note_missing(connection, of)
    return 0


def _repeat(database: Database, act: Callable[[Connection], int]) -> None:
    while _once(database, act) == ROWS_AT_ONCE:
        continue


def _once(database: Database, act: Callable[[Connection], int]) -> int:
    """Acts in a transaction of its own unless another replica does; returns how much was done."""
    return database.write(lambda connection: act(connection) if turns.take(connection, "end_usage") else 0)
