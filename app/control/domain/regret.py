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

from solvers.forecast.peaks import DEFAULT
from solvers.planning.batches.batch import Batch, GroupRow
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
class Goal:
    """The cheapest plan that is known: what it would save an hour, its price, and what it would have saved so far."""

    saved_per_hour: float = 0.0
    price: float = 0.0
    regret: float = 0.0
    at: datetime | None = None
    cost_in_force: float = 0.0  # an hour, of the GPUs of the plan that it was compared with

    def waited(self, now: datetime) -> Goal:
        """Returns the goal with what it would have saved until now."""
        return replace(self, regret=self.regret + self.saved_per_hour * _hours(self.at, now), at=now)

    def after(self, cost: float) -> Goal:
        """Returns the goal once the plan in force costs this: what it saves by now has been waited for."""
        if self.saved_per_hour <= 0 or cost >= self.cost_in_force:
            return self
        left = max(0.0, 1 - (self.cost_in_force - cost) / self.saved_per_hour)
        return replace(
            self, saved_per_hour=self.saved_per_hour * left, regret=self.regret * left, cost_in_force=cost
        )  # fmt: skip

    @property
    def is_due(self) -> bool:
        return self.saved_per_hour > 0 and self.regret + self.saved_per_hour * LEAD_HOURS >= self.price


NO_GOAL = Goal()


@dataclass(frozen=True, slots=True)
class RegretAccounts:
    """The batches and the goal that wait, as measured at a moment."""

    at: datetime | None = None
    waiting: tuple[WaitingBatch, ...] = ()
    goal: Goal = NO_GOAL

    @property
    def groups(self) -> tuple[GroupRow, ...]:
        return tuple(entry.batch.groups for entry in self.waiting)

    def measured(self, now: datetime, found: Iterable[Batch], most: int) -> RegretAccounts:
        """Returns the accounts after a new measurement, with what batches would have saved since the last one.

        A batch that is not possible any more loses as much as it would have gained, so that loads that go back and
        forth make nothing due. A batch that takes its place continues its account.
        """
        hours = _hours(self.at, now)
        old = {entry.batch.groups: entry for entry in self.waiting}
        new = {batch.groups: WaitingBatch(batch) for batch in found if batch.gain_per_hour > 0}
        for row in old.keys() & new.keys():
            new[row] = replace(new[row], regret=old[row].after(hours))
        for entry in self.waiting:
            if entry.batch.groups in new:
                continue
            unclaimed = [waiting for waiting in new.values() if waiting.batch.groups not in old and not waiting.regret]
            heirs = [waiting for waiting in unclaimed if _is_akin(waiting, entry)]
            if heirs:
                heir = max(heirs, key=lambda waiting: (waiting.batch.gain_per_hour, waiting.batch.groups))
                share = min(1.0, heir.batch.gain_per_hour / entry.batch.gain_per_hour)
                new[heir.batch.groups] = replace(heir, regret=entry.after(hours) * share)
            elif (regret := entry.after(-hours)) > 0:
                new[entry.batch.groups] = replace(entry, regret=regret, is_possible=False)
        best = sorted(new.values(), key=lambda waiting: (-waiting.gain_per_price, waiting.batch.groups))
        return replace(self, at=now, waiting=tuple(best[:most]))

    @property
    def is_refused(self) -> bool:
        """True if something that still pays was due lately and had no order of steps."""
        is_goal = self.goal.saved_per_hour > 0 and self.goal.regret < 0
        return is_goal or any(entry.is_possible and entry.regret < 0 for entry in self.waiting)

    def towards(
        self, now: datetime, saved_per_hour: float, price: float, cost_in_force: float, *, is_possible: bool
    ) -> RegretAccounts:
        """Returns the accounts with this goal, which continues the account of the one before it.

        A goal that would cost more by now loses as much as it would have gained, as batches do. One that is possible,
        as it has an order of steps, does not wait because another had none.
        """
        before = self.goal
        regret = before.waited(now).regret
        if saved_per_hour <= 0:
            lost = -saved_per_hour * _hours(before.at, now)
            regret = min(before.regret, max(0.0, before.regret - lost))
        regret = max(0.0, regret) if is_possible else regret
        return replace(self, goal=Goal(max(0.0, saved_per_hour), price, regret, now, cost_in_force))

    def goal_refused(self) -> RegretAccounts:
        """Returns the accounts with the goal not due before it has cost its whole price again."""
        goal = self.goal
        return replace(self, goal=replace(goal, regret=-goal.saved_per_hour * LEAD_HOURS) if goal.is_due else goal)

    def goal_made(self) -> RegretAccounts:
        """Returns the accounts without a goal: what runs is the plan that was waited for."""
        return replace(self, goal=NO_GOAL)

    def goal_waited(self, now: datetime) -> RegretAccounts:
        """Returns the accounts after a time in which no goal was searched: the last one is taken to save the same."""
        return replace(self, goal=self.goal.waited(now))

    def waited(self, now: datetime) -> RegretAccounts:
        """Returns the accounts after a time in which nothing changed, so that each batch goes on to save the same."""
        hours = _hours(self.at, now)
        waiting = (replace(entry, regret=entry.after(hours)) if entry.is_possible else entry for entry in self.waiting)
        return replace(self, at=now, waiting=tuple(waiting), goal=self.goal.waited(now))

    def due(self, now: datetime) -> tuple[Batch, ...]:
        """Returns the batches that are due, first those that gain most beyond their price while a swing lasts."""
        hours = _hours(self.at, now)
        due = [entry.batch for entry in self.waiting if entry.is_due(hours)]
        return tuple(sorted(due, key=lambda batch: (batch.price - batch.gain_per_hour * LEAD_HOURS, batch.groups)))

    def most_price(self, batch: Batch, now: datetime) -> float:
        """Returns the price at which this batch is due."""
        hours = _hours(self.at, now)
        return max((entry.most_price(hours) for entry in self.waiting if entry.batch == batch), default=0.0)

    def made(self, batch: Batch) -> RegretAccounts:
        """Returns the accounts after a batch: another that shares GPUs with it keeps the regret of its other GPUs."""
        return replace(self, waiting=tuple(left for entry in self.waiting if (left := entry.without(batch.places))))

    def came_closer(self, cost: float) -> RegretAccounts:
        """Returns the accounts once the plan in force costs this an hour: a part of the goal may be made."""
        return replace(self, goal=self.goal.after(cost))

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
    return 2 * len(places & others) >= min(len(places), len(others))


NO_REGRETS = RegretAccounts()
