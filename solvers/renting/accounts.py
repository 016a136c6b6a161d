"""The account of a pool: what waiting for its nodes has cost, and for how long its nodes have idled."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_SECONDS = 3600.0
SECOND_LOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RentalTerms:
    """What a node of a pool costs, and for how long at least."""

    price_per_hour: float
    start_seconds: float
    minimum_seconds: float

    @property
    def entry_seconds(self) -> float:
        """Returns how long a node is paid for that is rented in vain: its start and its minimum term."""
        return self.start_seconds + self.minimum_seconds

    @property
    def entry_price(self) -> float:
        return self.price_per_hour * self.entry_seconds / HOUR_SECONDS

    def idle_seconds(self, noticed_after: float = 0.0) -> float:
        """Returns for how long nodes are seen to idle before they are given back: as long as one takes to start.

        They had idled for `noticed_after` when that was seen first; a second look, a minute later, must agree.
        """
        return min(self.start_seconds, max(SECOND_LOOK_SECONDS, self.start_seconds - noticed_after))


@dataclass(frozen=True, slots=True)
class RentAccount:
    """What waiting has cost since the need for more nodes first stood."""

    waited: float = 0.0

    def wait(self, saving_per_hour: float, seconds: float) -> RentAccount:
        """Returns the account after so long a wait for nodes that would save so much; 0 or less ends the need."""
        if saving_per_hour <= 0:
            return RentAccount()
        return RentAccount(self.waited + saving_per_hour * seconds / HOUR_SECONDS)

    def may_rent(self, terms: RentalTerms, nodes: int, saving_per_hour: float) -> bool:
        """Returns whether so many nodes are rented now.

        They are once waiting has cost what they would cost in vain. They are at once where they save as much again as
        they cost: that pays for them within a start and a minimum term.
        """
        return self.waited >= terms.entry_price * nodes or saving_per_hour >= terms.price_per_hour * nodes


@dataclass(frozen=True, slots=True)
class IdleNodes:
    """Since when at least one, two, ... nodes of a pool have idled, whichever they were: nodes of a pool are alike."""

    since: tuple[float, ...] = ()

    def note(self, count: int, now: float) -> IdleNodes:
        """Returns it with so many nodes that idle now."""
        return IdleNodes(self.since[:count] + (now,) * (count - len(self.since)))

    def count_due(self, terms: RentalTerms, now: float, noticed_after: float = 0.0) -> int:
        """Returns how many may be given back: as many as have idled for as long as a node takes to start.

        Rented again, a node costs its start. Its next term costs nothing in vain while it is needed, and once it is
        not, the node is given back as that term ends: the nodes of a pool never pay for two terms at a time.
        """
        return sum(now - since >= terms.idle_seconds(noticed_after) for since in self.since)

    def give_back(self, count: int) -> IdleNodes:
        return IdleNodes(self.since[count:])
