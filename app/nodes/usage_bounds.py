"""Bounds what nodes may report of usage: an interval beyond them is refused by itself, and all others are stored.

A holder of a node's token can always report less than what ran, so a refusal gives nothing away; without these bounds
one node's reports would be too much for everybody's ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from agents.contract.reports import Dropped, Report
from app.http.buckets import Buckets
from app.store.money.claims import Claim, ClaimContext

NOT_ASSIGNED = "not_assigned"  # usage that bills only the tenant that the instance was assigned for
LATER = "later"  # the agent sends it again
OVERLAPPING = "overlapping"
TOO_MANY_STARTS = "too_many_starts"
BEYOND_BOUNDS = (LATER, OVERLAPPING, TOO_MANY_STARTS)
QUARTER_SECONDS = 900

InstancePlace: TypeAlias = tuple[str, str, int]  # node, instance, GPU


@dataclass(frozen=True, slots=True)
class UsageBounds:
    """The bounds. An honest agent with a month of crash loops to report stays inside, or sends some of it later."""

    per_second: float = 20.0  # intervals of a node, opened or closed
    at_once: float = 1000.0
    strange_per_hour: float = 60.0  # intervals of a node that were never assigned there
    strange_at_once: float = 200.0
    open_of_node: int = 4096
    overlapping: int = 8  # others of the same instance and GPU; a hand-over has one, a lost journal leaves one more
    starts_of_quarter: int = 100  # of the same instance and GPU; an agent waits up to a minute before each retry


BOUNDS = UsageBounds()


class UsageClaims:
    """Decides about the usage of reports, with counts of what each node reported lately."""

    def __init__(self, bounds: UsageBounds) -> None:
        self._bounds = bounds
        self._paced = Buckets(bounds.per_second, bounds.at_once)
        self._strange = Buckets(bounds.strange_per_hour / 3600, bounds.strange_at_once)

    def pace(self, report: Report, now: float) -> dict[str, Dropped]:
        """Returns the intervals that come too fast, by id: they are for later."""
        return {
            interval.id: Dropped(f"usage {interval.id}", LATER, "this node reports too much usage at a time")
            for interval in report.usage
            if self._paced.take(report.node, now)
        }

    def refuse(
        self, claims: Iterable[Claim], contexts: Mapping[tuple[str, str], ClaimContext], now: float
    ) -> dict[tuple[str, str], Dropped]:
        """Returns what is not to be stored, by node and id, and why."""
        batch = _Batch()
        refused = {}
        for claim in claims:
            key = claim.node, claim.id
            if contexts[key].is_known or key in batch.taken or key in refused:
                continue
            reason, message = self._reason(claim, contexts[key], batch, now)
            if reason:
                refused[key] = Dropped(f"usage {claim.id}", reason, message)
            else:
                batch.take(claim)
        return refused

    def _reason(self, claim: Claim, context: ClaimContext, batch: _Batch, now: float) -> tuple[str, str]:
        bounds = self._bounds
        if not context.is_assigned:
            if self._strange.take(claim.node, now):
                return NOT_ASSIGNED, "too much usage of this node was never assigned to it; this is not stored"
            return "", ""
        place = f"instance {claim.instance} on GPU {claim.gpu}"
        if context.overlapping + batch.overlapping(claim) > bounds.overlapping:
            return OVERLAPPING, f"{place} has more than {bounds.overlapping} others at this time"
        if context.starts + batch.starts(claim) >= bounds.starts_of_quarter:
            return TOO_MANY_STARTS, f"{place} began {bounds.starts_of_quarter} times in this quarter-hour already"
        if claim.ended_at is None and context.open_of_node + batch.opened[claim.node] >= bounds.open_of_node:
            return LATER, f"this node has {bounds.open_of_node} open intervals already"
        return "", ""


@dataclass(slots=True)
class _Batch:
    """The intervals that are taken, before they are stored."""

    taken: set[tuple[str, str]] = field(default_factory=set)
    opened: Counter[str] = field(default_factory=Counter)
    _beside: defaultdict[InstancePlace, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    _starts: Counter[tuple[InstancePlace, int]] = field(default_factory=Counter)

    def take(self, claim: Claim) -> None:
        self.taken.add((claim.node, claim.id))
        self.opened[claim.node] += claim.ended_at is None
        self._beside[_place(claim)].append(claim)
        self._starts[_place(claim), _quarter(claim)] += 1

    def overlapping(self, claim: Claim) -> int:
        return sum(
            (claim.ended_at is None or other.started_at < claim.ended_at)
            and (other.ended_at is None or other.ended_at > claim.started_at)
            for other in self._beside[_place(claim)]
        )

    def starts(self, claim: Claim) -> int:
        return self._starts[_place(claim), _quarter(claim)]


def _place(claim: Claim) -> InstancePlace:
    return claim.node, claim.instance, claim.gpu


def _quarter(claim: Claim) -> int:
    return int(claim.started_at.timestamp() // QUARTER_SECONDS)
