"""One announcement: everything that a cycle is about to write for gateways, operators and tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.control.tell.degrade.shedding import Shedding
from app.control.tell.money import Addition
from app.control.tell.outcome import CycleOutcome
from app.control.tell.slo import SloStatus
from app.store.fleet.announced import Announced


@dataclass(frozen=True, slots=True)
class Announcement:
    """The outcome of a cycle and what was derived from it, under the epoch of the leader that announces it."""

    epoch: int
    outcome: CycleOutcome
    sheds: Mapping[str, Shedding]  # by service
    rent: Addition | None
    slos: Mapping[str, SloStatus]  # by service
    before: Announced  # what it follows from and compares itself with
