"""Brings the ledger up to date, a node in a transaction; any number of replicas may do it, and any may be killed.

A node that cannot be accounted for is quarantined by name, and all others are accounted for in the same minute.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from app.ledger import accounting, booking
from app.ledger.accounting import LONGEST, Span
from app.ledger.allocation import TooMuchUsage
from app.store.database import partitions
from app.store.database.database import Database, TooSlow, Unavailable
from app.store.money import allocations, quarantine

SPANS = (LONGEST, Span(4, 4), Span(1, 1))  # what is too much for one transaction may not be for more of them
ROUNDS = 100  # of all nodes; what is left is for the next call

log = logging.getLogger(__name__)


class Portions(Protocol):
    """The pauses between portions of work."""

    def portions(self, of: Iterable[int] | None = None) -> Iterable[int]: ...


def bring_up_to_date(database: Database, pace: Portions) -> int:
    """Accounts for all that is final; returns how many nodes had something, a node of many portions as often."""
    database.write(booking.book_missing)
    make_room(database)
    return _Pass(database).run(pace)


def make_room(database: Database) -> None:
    """Makes partitions for all that may be written now: what is reported late is about months that are long over."""
    months = database.read(allocations.months_due)
    if months:
        database.write(lambda connection: partitions.ensure(connection, months, daily=()))


class _Pass:
    """One call: rounds of all nodes that have something, a portion of each node in a round."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._count = 0
        self._suspects: dict[str, Unavailable] = {}  # failed as if the database were away, since the last success
        self._interrupted: set[str] = set()  # failed so before a success, for a reason that is not theirs

    def run(self, pace: Portions) -> int:
        nodes: deque[str] = deque()
        rounds, counted = 0, -1
        for _ in pace.portions():
            if not nodes:
                if rounds == ROUNDS or counted == self._count:
                    break
                nodes.extend(self._database.read(allocations.due))
                rounds, counted = rounds + 1, self._count
            if nodes:
                self._account(nodes.popleft())
        if not self._count:
            self._judge_suspects()
        for node in sorted(self._interrupted):
            self._account_again(node)
        return self._count

    def _judge_suspects(self) -> None:
        """Decides about nodes that failed in a pass in which none was accounted for.

        A database that ended the statements of one node after the other answers: their usage is too much for it. Any
        other trouble is the database's.
        """
        for error in self._suspects.values():
            if not isinstance(error, TooSlow):
                raise error
        for node, error in self._suspects.items():
            self._quarantine(node, error)

    def _account(self, node: str) -> None:
        try:
            did = self._keep_node(node)
        except Unavailable as error:
            self._suspects[node] = error
            away = [trouble for trouble in self._suspects.values() if not isinstance(trouble, TooSlow)]
            if len(away) > 1:  # not because of one node
                raise
        except Exception as error:
            self._quarantine(node, error)
        else:
            self._count += did
            for suspect, trouble in self._suspects.items():
                if isinstance(trouble, TooSlow):
                    self._quarantine(suspect, trouble)
                else:  # of the database or the way to it, which is over
                    self._interrupted.add(suspect)
            self._suspects.clear()

    def _account_again(self, node: str) -> None:
        """Accounts for a node whose statement was lost; lost again, it is for the next call, and blamed on nobody."""
        try:
            self._count += self._keep_node(node)
        except Unavailable as error:
            if not isinstance(error, TooSlow):
                raise
            self._quarantine(node, error)
        except Exception as error:
            self._quarantine(node, error)

    def _keep_node(self, node: str) -> bool:
        for span in SPANS[:-1]:
            try:
                return self._keep_span(node, span)
            except TooMuchUsage as error:
                log.warning("account_in_shorter_spans", extra={"node": node, "error": str(error)})
        return self._keep_span(node, SPANS[-1])

    def _keep_span(self, node: str, span: Span) -> bool:
        # Done twice, the second finds it done.
        return self._database.write(partial(accounting.account, node=node, span=span), repeatable=True)

    def _quarantine(self, node: str, error: Exception) -> None:
        log.error("node_quarantined", extra={"node": node}, exc_info=error)
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self._database.write(lambda connection: quarantine.quarantine(connection, node, reason))
