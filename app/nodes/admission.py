"""Decides what of a batch of reports may be stored: a report's own clock and its amount of usage have bounds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from sqlalchemy import Connection

from agents.contract.reports import Dropped, Report
from app.nodes.usage_bounds import UsageBounds, UsageClaims
from app.store.database import clock
from app.store.fleet.node_reports import INCARNATION_AHEAD
from app.store.money import claims
from app.store.money.claims import Claim

AHEAD = "ahead"

Refused: TypeAlias = Mapping[tuple[str, str], Dropped]  # by node and id of usage


@dataclass(frozen=True, slots=True)
class Admitted:
    """The parts of a batch that are not stored: the state of some reports, in their order, and refused usage."""

    ahead: Sequence[bool]
    refused: Refused


class Admission:
    """Remembers how much usage each node reported lately, and a moment that has certainly passed."""

    def __init__(self, bounds: UsageBounds) -> None:
        self._claims = UsageClaims(bounds)
        self._passed = 0  # by the database's clock, in seconds since 1970

    def pace(self, batch: Sequence[Report]) -> dict[tuple[str, str], Dropped]:
        """Returns the usage that comes too fast."""
        now = time.monotonic()
        return {
            (report.node, name): dropped
            for report in batch
            if report.usage
            for name, dropped in self._claims.pace(report, now).items()
        }

    def admit(self, connection: Connection, batch: Sequence[Report], paced: Refused) -> Admitted:
        """Returns what is not to be stored, by what is stored already and by the database's clock."""
        reported = [
            Claim(report.node, usage.id, usage.instance, usage.gpu, usage.started_at, usage.ended_at)
            for report in batch
            for usage in report.usage
            if (report.node, usage.id) not in paced
        ]
        refused = dict(paced)
        if reported:
            refused |= self._claims.refuse(reported, claims.contexts(connection, reported), time.monotonic())
        return Admitted(self._ahead(connection, batch), refused)

    def _ahead(self, connection: Connection, batch: Sequence[Report]) -> Sequence[bool]:
        highest = self._passed + INCARNATION_AHEAD // timedelta(seconds=1)
        if any(report.incarnation > highest for report in batch):
            self._passed = int(clock.now(connection).timestamp())
            highest = self._passed + INCARNATION_AHEAD // timedelta(seconds=1)
        return [report.incarnation > highest for report in batch]
