"""Decides when a batch of moves, or a whole cheaper plan, is made: once waiting for it has cost as much as its churn.

How long a saving will last is unknown. This is how a skier buys skis: when the rents so far add up to their price.
Then it costs at most twice as much as the better of waiting and of moving at once, however the loads change. Earlier,
a batch is made only if its churn is repaid within the time for which the loads of a plan are predicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from solvers.planning.batches.batch import Batch, GroupRow

LEAD_HOURS = 0.05  # for which the loads of a plan are predicted
GOAL_LEAD_HOURS = 0.1  # for which the saving of the goal is expected: the peak of a swing is planned for longer
LONGEST_GAP_HOURS = 0.05  # between two measurements: of a longer one, the rest is not counted
MOST_WAITING = 6  # batches: those that save most for their churn
LEAST_CHURN = 1e-6  # a price


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A batch, and what it would have saved since it became possible."""

    batch: Batch
    regret: float = 0.0
    is_possible: bool = True

    def after(self, hours: float) -> float:
        """Returns the regret after so many hours more."""
        return self.regret + self.batch.saved_per_hour * hours

    def is_due(self, hours: float) -> bool:
        """Returns whether it is to be made after so many hours more."""
        return self.is_possible and self.after(hours + LEAD_HOURS) >= self.batch.churn

    @property
    def saved_per_churn(self) -> float:
        return self.batch.saved_per_hour / max(self.batch.churn, LEAST_CHURN)


@dataclass(frozen=True, slots=True)
class Goal:
    """The cheapest plan that is known: what it would save an hour, its churn, and what it would have saved so far."""

    saved_per_hour: float = 0.0
    churn: float = 0.0
    regret: float = 0.0
    at: datetime | None = None
    spent: float = 0.0  # the churn of sidesteps towards it

    def waited(self, now: datetime) -> Goal:
        """Returns the goal with what it would have saved until now."""
        return replace(self, regret=self.regret + self.saved_per_hour * _hours(self.at, now), at=now)

    @property
    def is_due(self) -> bool:
        return self.saved_per_hour > 0 and self.regret + self.saved_per_hour * GOAL_LEAD_HOURS >= self.churn

    @property
    def is_due_again(self) -> bool:
        """Whether another sidestep may be made: each has to be waited for, in case that none of them leads there."""
        return replace(self, churn=self.churn + 2 * self.spent).is_due


NO_GOAL = Goal()


@dataclass(frozen=True, slots=True)
class RegretAccounts:
    """The batches that wait, as measured at a moment."""

    at: datetime | None = None
    waiting: tuple[WaitingBatch, ...] = ()
    goal: Goal = NO_GOAL

    @property
    def groups(self) -> tuple[GroupRow, ...]:
        return tuple(entry.batch.groups for entry in self.waiting)

    def measured(self, now: datetime, found: Iterable[Batch]) -> RegretAccounts:
        """Returns the accounts after a new measurement, with what batches would have saved since the last one.

        A batch that is not possible any more loses as much as it would have gained, so that loads that go back and
        forth make nothing due. A batch that takes its place continues its account.
        """
        hours = self._hours_until(now)
        old = {entry.batch.groups: entry for entry in self.waiting}
        new = {batch.groups: WaitingBatch(batch) for batch in found if batch.saved_per_hour > 0}
        for row in old.keys() & new.keys():
            new[row] = replace(new[row], regret=old[row].after(hours))
        for entry in self.waiting:
            if entry.batch.groups in new:
                continue
            unclaimed = [waiting for waiting in new.values() if waiting.batch.groups not in old and not waiting.regret]
            heirs = [waiting for waiting in unclaimed if _is_akin(waiting, entry)]
            if heirs:
                heir = max(heirs, key=lambda waiting: (waiting.batch.saved_per_hour, waiting.batch.groups))
                share = min(1.0, heir.batch.saved_per_hour / entry.batch.saved_per_hour)
                new[heir.batch.groups] = replace(heir, regret=entry.after(hours) * share)
            elif (regret := entry.after(-hours)) > 0:
                new[entry.batch.groups] = replace(entry, regret=regret, is_possible=False)
        best = sorted(new.values(), key=lambda waiting: (-waiting.saved_per_churn, waiting.batch.groups))
        return replace(self, at=now, waiting=tuple(best[:MOST_WAITING]))

    def towards(self, now: datetime, saved_per_hour: float, churn: float) -> RegretAccounts:
        """Returns the accounts with this goal, which continues the account of the goal before it."""
        before = replace(self.goal, saved_per_hour=saved_per_hour).waited(now)
        return replace(self, goal=replace(before, churn=churn))

    def without_goal(self) -> RegretAccounts:
        """Returns the accounts after a goal was made, or came to nothing."""
        return replace(self, goal=NO_GOAL)

    def after_sidestep(self, churn: float) -> RegretAccounts:
        """Returns the accounts after a sidestep: the goal stays due, so that it follows at once."""
        return replace(self, goal=replace(self.goal, spent=self.goal.spent + churn))

    def waited(self, now: datetime) -> RegretAccounts:
        """Returns the accounts after a time in which nothing changed, so that each batch goes on to save the same."""
        hours = self._hours_until(now)
        waiting = (replace(entry, regret=entry.after(hours)) if entry.is_possible else entry for entry in self.waiting)
        return RegretAccounts(now, tuple(waiting), self.goal.waited(now))

    def _hours_until(self, now: datetime) -> float:
        return _hours(self.at, now)

    def due(self, now: datetime) -> tuple[Batch, ...]:
        """Returns the batches that are due, those that save most first."""
        hours = self._hours_until(now)
        due = [entry.batch for entry in self.waiting if entry.is_due(hours)]
        return tuple(sorted(due, key=lambda batch: (-batch.saved_per_hour, batch.churn, batch.groups)))

    def made(self, batch: Batch) -> RegretAccounts:
        """Returns the accounts without the batches that have a GPU of this batch: it runs something else now."""
        return replace(
            self, waiting=tuple(entry for entry in self.waiting if batch.places.isdisjoint(entry.batch.places))
        )

    def refused(self, batch: Batch) -> RegretAccounts:
        """Returns the accounts with this batch not due before it has cost its whole churn again."""
        return replace(
            self,
            waiting=tuple(
                replace(entry, regret=entry.after(-LEAD_HOURS) - entry.regret) if entry.batch == batch else entry
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
