"""Decides when a batch of moves, or a whole cheaper plan, is made: once waiting for it has cost as much as its price.

How long a saving will last is unknown. This is how a skier buys skis: when the rents so far add up to their price.
Then it costs at most twice as much as the better of waiting and of moving at once, however the loads change. It is
made earlier only if its price is repaid within the longest time for which planned rates stay at the upper end of a
swing.
The price is the churn, and something for each start, move and resize (`solvers.planning.replan.effort`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from solvers.forecast.settings import DEFAULT
from solvers.planning.batches.batch import WHOLE, Batch, GroupRow
from solvers.planning.problem import Place

LEAD_HOURS = DEFAULT.swing_seconds / 3600
LONGEST_GAP_HOURS = 0.05  # between two measurements: of a longer one, the rest is not counted
LEAST_WAITING = 6  # of the most batches that may wait: those that save most for their price
GPUS_A_BATCH = 4  # in use, for each batch that may wait in a large fleet
LEAST_PRICE = 1e-6  # a price


def most_waiting(gpus: int) -> int:
    """Returns how many batches may wait in a fleet with so many GPUs in use."""
    return max(LEAST_WAITING, gpus // GPUS_A_BATCH)


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A batch, and what it would have saved since it became possible."""

    batch: Batch
    regret: float = 0.0
    is_possible: bool = True

    def after(self, hours: float) -> float:
        """Returns the regret after so many hours more.

        Unserved load is no regret: whatever serves it first ends it for all batches that would.
        """
        return self.regret + max(0.0, self.batch.saved_per_hour) * hours

    def is_due(self, hours: float) -> bool:
        """Returns whether it is to be made after so many hours more."""
        return self.is_possible and self.most_price(hours) >= self.batch.price

    def most_price(self, hours: float) -> float:
        """Returns the price at which it is to be made after so many hours more."""
        return self.after(hours) + max(0.0, self.batch.gain_per_hour) * LEAD_HOURS

    def without(self, places: frozenset[Place]) -> WaitingBatch | None:
        """Returns the batch with the regret of its other GPUs once these are used otherwise; None without others.

        Whether it is still possible is known when it is measured again.
        """
        own = self.batch.places
        if own.isdisjoint(places):
            return self
        left = len(own - places) / len(own)
        return replace(self, regret=self.regret * left, is_possible=False) if left else None

    @property
    def gain_per_price(self) -> float:
        return self.batch.gain_per_hour / max(self.batch.price, LEAST_PRICE)


@dataclass(frozen=True, slots=True)
class RegretAccounts:
    """The batches, and the whole plan, that wait, as measured at a moment."""

    at: datetime | None = None
    waiting: tuple[WaitingBatch, ...] = ()

    @property
    def groups(self) -> tuple[GroupRow, ...]:
        return tuple(entry.batch.groups for entry in self.waiting)

    def measured(
        self, now: datetime, found: Iterable[Batch], most: int, *, looks_for_whole: bool = True
    ) -> RegretAccounts:
        """Returns the accounts after a new measurement, with what batches would have saved since the last one.

        A batch that is not possible any more loses as much as it would have gained, so that loads that go back and
        forth make nothing due. A batch that takes its place continues its account. A whole plan that was not looked for
        goes on to save the same.
        """
        hours = _hours(self.at, now)
        old = {entry.batch.groups: entry for entry in self.waiting}
        new = {batch.groups: WaitingBatch(batch) for batch in found if batch.gain_per_hour > 0}
        for row in old.keys() & new.keys():
            new[row] = replace(new[row], regret=old[row].after(hours))
        for entry in self.waiting:
            if entry.batch.groups in new:
                continue
            if entry.batch.groups == WHOLE and not looks_for_whole:
                new[WHOLE] = replace(entry, regret=entry.after(hours), is_possible=False)
                continue
            unclaimed = [waiting for waiting in new.values() if waiting.batch.groups not in old and not waiting.regret]
            heirs = [waiting for waiting in unclaimed if _is_akin(waiting, entry)]
            if heirs:
                heir = max(heirs, key=lambda waiting: (waiting.batch.gain_per_hour, waiting.batch.groups))
                share = min(1.0, heir.batch.gain_per_hour / entry.batch.gain_per_hour)
                new[heir.batch.groups] = replace(heir, regret=entry.after(hours) * share)
            elif (regret := entry.after(-hours)) > 0:
                new[entry.batch.groups] = replace(entry, regret=regret, is_possible=False)
        whole = tuple(entry for entry in (new.pop(WHOLE, None),) if entry)
        best = sorted(new.values(), key=lambda waiting: (-waiting.gain_per_price, waiting.batch.groups))
        return replace(self, at=now, waiting=(*whole, *best[:most]))

    @property
    def is_refused(self) -> bool:
        """True if a batch that still pays was due lately and had no order of steps."""
        return any(entry.is_possible and entry.regret < 0 for entry in self.waiting)

    def waited(self, now: datetime) -> RegretAccounts:
        """Returns the accounts after a time in which nothing changed, so that each batch goes on to save the same."""
        hours = _hours(self.at, now)
        waiting = (replace(entry, regret=entry.after(hours)) if entry.is_possible else entry for entry in self.waiting)
        return replace(self, at=now, waiting=tuple(waiting))

    def due(self, now: datetime) -> tuple[Batch, ...]:
        """Returns the whole plan, and the batches that gain most beyond their price while a swing lasts, if due."""
        hours = _hours(self.at, now)
        due = [entry.batch for entry in self.waiting if entry.is_due(hours)]
        due.sort(key=lambda batch: (batch.price - batch.gain_per_hour * LEAD_HOURS, batch.groups))
        return tuple(sorted(due, key=lambda batch: batch.groups != WHOLE))

    def most_price(self, batch: Batch, now: datetime) -> float:
        """Returns the price at which this batch is due."""
        hours = _hours(self.at, now)
        return max((entry.most_price(hours) for entry in self.waiting if entry.batch == batch), default=0.0)

    def made(self, batch: Batch) -> RegretAccounts:
        """Returns the accounts after a batch: another that shares GPUs with it keeps the regret of its other GPUs."""
        others = (entry for entry in self.waiting if entry.batch != batch)
        return replace(self, waiting=tuple(left for entry in others if (left := entry.without(batch.places))))

    def refused(self, batch: Batch) -> RegretAccounts:
        """Returns the accounts with this batch not due before it has cost its whole price again."""
        return replace(
            self,
            waiting=tuple(
                replace(entry, regret=-entry.batch.gain_per_hour * LEAD_HOURS) if entry.batch == batch else entry
                for entry in self.waiting
            ),
        )


def _hours(since: datetime | None, now: datetime) -> float:
    hours = 0.0 if since is None else (now - since).total_seconds() / 3600
    return min(max(hours, 0.0), LONGEST_GAP_HOURS)


def _is_akin(entry: WaitingBatch, other: WaitingBatch) -> bool:
    """Returns whether the two start from the same GPUs, for the most part."""
    places, others = entry.batch.places, other.batch.places
    return 2 * len(places & others) >= max(1, min(len(places), len(others)))


NO_REGRETS = RegretAccounts()
