"""When nodes are ordered and given back: the rule of accounts, and what any other rule has to answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.rent.question import PoolOffer, RentalPool, RentNeed, ask_renting, list_used, pose_renting
from app.control.rent.states import COMING, REST, RentedNode, RentState
from solvers.forecast.settings import DEFAULT
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.renting import IdleNodes, RentAccount

# Plans keep the rate of a load that has fallen for so long: what they leave empty has been idle since.
HELD_SECONDS = DEFAULT.cooldown_seconds
Foresee = Callable[[float], Mapping[str, float]]  # the upper rate of each service so many seconds from now


@dataclass(frozen=True, slots=True)
class RentMoment:
    """All that a rule decides from."""

    snapshot: Snapshot
    problem: Problem
    plan: Plan  # in force
    pools: Mapping[str, RentalPool]
    rows: Sequence[RentedNode]  # live orders, and those that ended within a day
    foresee: Foresee
    seconds: float  # since the last decision
    earlier: Mapping[str, float] = field(default_factory=dict)  # what waiting had cost, by pool, under the last leader

    @property
    def now(self) -> datetime:
        return self.snapshot.at

    def live(self, pool: str) -> list[RentedNode]:
        """Returns the orders of a pool whose nodes are, or may be, paid for."""
        return [row for row in self.rows if row.pool == pool and row.counts]

    def count_coming(self, pool: str) -> int:
        return sum(row.state in COMING for row in self.live(pool))

    def count_standing(self, pool: str) -> int:
        """Returns how many nodes of a pool have joined or are on their way: a late one may never come."""
        return sum(row.state in (*COMING, RentState.JOINED) for row in self.live(pool))

    def rests(self, pool: str) -> bool:
        """Returns whether its hook has just refused an order: others are asked meanwhile."""
        refused = [row for row in self.rows if row.pool == pool and row.state is RentState.REFUSED and row.called_at]
        return any(self.now - row.since < REST for row in refused)

    def list_offers(self) -> list[PoolOffer]:
        """Returns what each pool offers; one that has just refused orders nothing."""
        found = []
        for pool in self.pools.values():
            room = 0 if self.rests(pool.name) else max(0, pool.most - len(self.live(pool.name)))
            found.append(PoolOffer(pool, self.count_coming(pool.name), room))
        return found

    def is_over(self, row: RentedNode, ahead_seconds: float = 0.0) -> bool:
        """Returns whether its term, as it was ordered, is over so long from now."""
        return row.paid_at is not None and self.now + timedelta(seconds=ahead_seconds) - row.paid_at >= row.term

    def list_ending(self, pool: RentalPool) -> list[RentedNode]:
        """Returns the nodes of a pool that have joined and whose terms are over within a start.

        That is as long as they have to idle before they are given back: it has passed when their terms end.
        """
        joined = [row for row in self.live(pool.name) if row.state is RentState.JOINED]
        return [row for row in joined if self.is_over(row, pool.terms.start_seconds)]

    @property
    def ending(self) -> frozenset[str]:
        """Returns the names of all nodes that can be given back once they have idled for as long as a start."""
        return frozenset(row.node for pool in self.pools.values() for row in self.list_ending(pool))

    @property
    def idle(self) -> frozenset[str]:
        """Returns the rented nodes that have joined and on which nothing is planned."""
        busy = list_used(self.plan)
        return frozenset(row.node for row in self.rows if row.state is RentState.JOINED and row.node not in busy)


@dataclass(frozen=True, slots=True)
class RentDecision:
    """How many nodes of each pool are ordered, and which leave; for a person, what each pool waits for.

    `waited` is what waiting has cost since, by pool, for the next leader; None where nothing was counted.
    """

    orders: Mapping[str, int]
    leaving: Sequence[RentedNode]
    waits: Mapping[str, str] = field(default_factory=dict)
    waited: Mapping[str, float] | None = None


class RentRule(Protocol):
    """Decides what is rented and given back."""

    def decide(self, moment: RentMoment, solver: PlanSolver) -> RentDecision | None: ...


@dataclass(slots=True)
class AccountRule:
    """Rents what pays for itself and gives back what has idled, by an account of each pool."""

    _accounts: dict[str, RentAccount] = field(default_factory=dict)  # by pool
    _idle: dict[str, IdleNodes] = field(default_factory=dict)

    def decide(self, moment: RentMoment, solver: PlanSolver) -> RentDecision | None:
        """Returns what is ordered and what leaves; None where the solver gave no answer."""
        need = _find_need(moment, solver)
        if need is None:
            return None
        for name, cost in moment.earlier.items():
            self._accounts.setdefault(name, RentAccount(cost))
        orders = {pool.name: self._count_orders(pool, moment, need) for pool in moment.pools.values()}
        leaving = [row for pool in moment.pools.values() for row in self._give_back(pool, moment, need)]
        waits = {pool.name: self._explain(pool, moment, need) for pool in moment.pools.values()}
        waited = {name: self._accounts[name].waited for name in moment.pools if self._accounts[name].waited > 0}
        return RentDecision(orders, leaving, {name: why for name, why in waits.items() if why}, waited)

    def _count_orders(self, pool: RentalPool, moment: RentMoment, need: RentNeed) -> int:
        missing, share = _find_missing(pool, moment, need)
        account = self._accounts.get(pool.name, RentAccount()).wait(share, moment.seconds)
        short = min(pool.least - moment.count_standing(pool.name), pool.most - len(moment.live(pool.name)))
        count = 0 if moment.rests(pool.name) else max(0, short)
        if missing > 0 and account.may_rent(pool.terms, missing, share):
            account, count = RentAccount(), max(count, missing)
        self._accounts[pool.name] = account
        return count

    def _give_back(self, pool: RentalPool, moment: RentMoment, need: RentNeed) -> list[RentedNode]:
        """Returns nodes that leave now: their terms are over, and as many were not needed for long enough.

        None leaves for another that is still on its way, and may never come.
        """
        seconds, plan = moment.now.timestamp(), moment.plan
        spare = [row for row in moment.list_ending(pool) if row.node not in need.used]
        known = self._idle.get(pool.name, IdleNodes())
        if need.uses_coming:  # none begins to idle, and what is needed again idles no longer
            self._idle[pool.name] = known.note(min(len(known.since), len(spare)), seconds)
            return []
        known = known.note(len(spare), seconds)
        held = Counter([*(line.node for line in plan.instances), *(job.node for job in plan.jobs)])
        joined = sum(row.state is RentState.JOINED for row in moment.live(pool.name))
        due = max(0, min(known.count_due(pool.terms, seconds, HELD_SECONDS), joined - pool.least))
        over = [row for row in spare if moment.is_over(row)]
        going = sorted(over, key=lambda row: (held[row.node], row.asked_at, row.node))[:due]
        self._idle[pool.name] = known.give_back(len(going))
        return going

    def _explain(self, pool: RentalPool, moment: RentMoment, need: RentNeed) -> str:
        """Returns what is waited for before the next node is ordered or given back; empty for nothing."""
        missing, share = _find_missing(pool, moment, need)
        waited, spare = self._accounts[pool.name].waited, len(self._idle.get(pool.name, IdleNodes()).since)
        if moment.rests(pool.name):
            return f"its hook refused an order: it is asked again {REST.total_seconds() / 60:.0f} minutes later"
        if missing > 0 and waited > 0:
            limit = pool.terms.entry_price * missing
            return (
                f"{missing} more would save {share:.2f} an hour: ordered once waiting has cost {limit:.2f}, "
                f"and it has cost {waited:.2f}"
            )
        if spare > 0:
            seconds = pool.terms.idle_seconds(HELD_SECONDS)
            goes = "they go as their terms end, unless its min keeps them"
            return f"the load needs {spare} less for {seconds:.0f} s: {goes}"
        return ""


def _find_missing(pool: RentalPool, moment: RentMoment, need: RentNeed) -> tuple[int, float]:
    """Returns how many nodes of a pool are still to be ordered, and what they would save an hour."""
    missing = min(need.wanted.get(pool.name, 0), pool.most - len(moment.live(pool.name)))
    return missing, need.saving_per_hour * max(0, missing) / max(1, sum(need.wanted.values()))


def _find_need(moment: RentMoment, solver: PlanSolver) -> RentNeed | None:
    ahead = moment.foresee(max(pool.terms.start_seconds for pool in moment.pools.values()))
    present = moment.foresee(0.0)
    # The plan's rates cover the doubt of now already: a start adds what the load rises by until the node is up.
    rates = {
        name: service.rate_per_second
        + max(0.0, min(ahead.get(name, 0.0) - present.get(name, 0.0), ahead.get(name, 0.0) - expected.rate_per_second))
        for name, service in moment.problem.services.items()
        if (expected := moment.snapshot.expected.get(name)) is not None
    }
    question, pool_of = pose_renting(moment.problem, moment.list_offers(), rates, moment.ending)
    if not question.nodes or not question.services:  # jobs alone rent nothing, and keep what they run on
        return RentNeed(list_used(moment.plan), {}, 0.0)
    standing = {row.node: row.pool for row in moment.rows if row.state is RentState.JOINED}
    return ask_renting(solver, question, pool_of, standing)
