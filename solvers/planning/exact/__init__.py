"""Proves small instances: finds the cheapest GPUs that can serve everything, and that no cheaper ones can.

The cost of a plan that serves everything is the price of its GPUs, so it takes few values. The search goes through the
choices of GPUs from the cheapest on. Of each it proves that it cannot serve everything, or finds how it can.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from solvers.planning.exact.patterns import Codes, Patterns, choices
from solvers.planning.exact.placements import exact_placements
from solvers.planning.exact.scope import applies, is_whole
from solvers.planning.exact.search import ENOUGH_SHARE, ExactSearch, Verdict
from solvers.planning.search.realise import NOBODY, PlacedInstances
from solvers.planning.search.tables import Floats, Ints, Tables

__all__ = ["ExactProof", "applies", "prove"]

LEAST_SHARE = 1e-6  # of a cost that is known: GPUs that cost less by this cannot serve everything
SLICE_BRANCHES = 100  # between two reports
LIST_STEPS = 1e6  # of a list of patterns, for each step of work: about the same time
LIMITS = (30_000, 1_000_000)  # patterns of a pool: few to find an answer among, then all


@dataclass(frozen=True, slots=True)
class ExactProof:
    """The result so far: a bound and, once there is one, an optimal plan."""

    bound: float
    placed: PlacedInstances | None
    proved: bool
    work: int
    cost: float = 0.0  # of the plan
    unjudged: PlacedInstances | None = None  # a plan that obeys the rules that the search covers, if others may bind


def prove(t: Tables, work: int | None = None, least: float = 0.0) -> Iterator[ExactProof]:
    """Yields better and better bounds until the optimum is proved or the work is done.

    It is proved already that no plan costs less than `least`, so GPUs that cost less cannot serve everything.
    """
    space = Patterns(t)
    can_be_served = space.served[: len(t.services)]
    lost = np.flatnonzero(~can_be_served)
    sure = float((t.unserved_price[lost] * np.maximum(t.rate[lost], 1.0)).sum())
    if not can_be_served.any():
        yield ExactProof(sure, NOBODY, True, 0)
        return
    # Apart from services that no GPU can serve, a plan serves everything or pays at least this for what it leaves out.
    most = sure + float(t.unserved_price[can_be_served].min())
    chosen, costs = choices(t, np.array([pool.price_per_hour + _idle_price(t, pool.gpu_type) for pool in t.pools]))
    refuted = sure + costs < least - LEAST_SHARE * max(1.0, least)
    begin = space.served / space.served.sum()
    state, settled = _ProofState(work), True
    for at, (number, cost) in enumerate(zip(chosen, costs, strict=True)):
        if refuted[at]:
            continue
        if settled:
            state.level = sure + float(cost)
        if sure + cost >= most * (1 - 1e-12):
            break
        yield state.report()
        if state.is_done():
            return
        v, worth, rounds = space.priced(number, ENOUGH_SHARE, begin)
        state.spent += rounds
        refuted |= chosen @ space.worths(v, range(len(worth))) < ENOUGH_SHARE - 1e-9
        if refuted[at]:
            continue
        verdict, picked = yield from _decide(space, number, v, worth, state)
        if verdict == "yes":
            whole = is_whole(t)
            placed = exact_placements(t, space, picked)
            right, unjudged = (placed, None) if whole else (None, placed)
            yield ExactProof(state.level, right, settled and whole, state.spent, sure + float(cost), unjudged)
            return
        if verdict == "no":
            refuted |= (chosen <= number).all(axis=1)
        else:
            settled = False
    else:
        state.level = most if settled else state.level
    yield ExactProof(min(state.level, most), None, False, state.spent)


@dataclass
class _ProofState:
    """The bound that is proved, and the work spent on it."""

    work: int | None
    spent: int = 0
    level: float = 0.0

    def is_done(self, more: int = 0) -> bool:
        return self.work is not None and self.spent + more >= self.work

    def report(self, more: int = 0) -> ExactProof:
        return ExactProof(self.level, None, False, self.spent + more)


def _decide(
    space: Patterns, number: Ints, v: Floats, worth: Floats, state: _ProofState
) -> Generator[ExactProof, None, tuple[Verdict, list[tuple[int, Codes]]]]:
    """Decides if so many GPUs of each pool can serve everything; "yes" comes with the pool and pattern of each GPU."""
    for limit in LIMITS:
        before = space.steps
        allowed = _allowed(space, number, v, worth, limit)
        state.spent += int((space.steps - before) / LIST_STEPS)
        search = ExactSearch(
            [found.rates for found in allowed.pools], [int(number[found.pool]) for found in allowed.pools],
            v[space.served],
        )  # fmt: skip
        verdict = search.run(0)
        while verdict == "open" and not state.is_done(search.work):
            verdict = search.run(SLICE_BRANCHES)
            yield state.report(search.work)
        state.spent += search.work
        if verdict != "no" or allowed.is_whole or state.is_done():
            break
    if verdict == "yes":
        return verdict, [(allowed.pools[at].pool, allowed.pools[at].codes[p]) for at, p in search.chosen]
    return verdict if allowed.is_whole else "open", []


def _idle_price(t: Tables, gpu_type: str) -> float:
    return t.problem.gpu_types[gpu_type].idle_w / 1000 * t.problem.policy.energy_price_per_kwh


@dataclass(frozen=True, slots=True)
class PoolPatterns:
    """The patterns that may be on a GPU of a pool, and the exact rate of each."""

    pool: int
    codes: Codes
    rates: Floats


@dataclass(frozen=True, slots=True)
class CandidatePatterns:
    """The patterns that could be part of an answer; not whole if there were too many."""

    pools: list[PoolPatterns]
    is_whole: bool


def _allowed(space: Patterns, number: Ints, v: Floats, worth: Floats, limit: int) -> CandidatePatterns:
    """Lists each pool's patterns that can be part of an answer next to the best patterns of all other GPUs."""
    slack = float(number @ worth) - ENOUGH_SHARE
    pools: list[PoolPatterns] = []
    services, copies, is_whole = len(space.t.services), space.copy_prices(v), True
    for pool in np.flatnonzero(number).tolist():
        least = float(worth[pool]) - slack - 1e-8
        found, all_of_them = space.worth_least(pool, v[:services], copies, least, limit)
        if not all_of_them:  # the better patterns are likelier to be part of an answer
            is_whole = False
            for part_of_slack in (0.5, 0.2, 0.05):
                least = float(worth[pool]) - part_of_slack * slack - 1e-8
                better, all_of_them = space.worth_least(pool, v[:services], copies, least, limit)
                found = better if len(better) else found
                if all_of_them:
                    break
        rates, _ = space.exact(pool, found)
        if not len(found):
            found, rates = np.full((1, found.shape[1]), -1, dtype=np.int32), np.zeros((1, len(v)))
        pools.append(PoolPatterns(pool, found, np.ascontiguousarray(rates[:, space.served])))
    return CandidatePatterns(pools, is_whole)
