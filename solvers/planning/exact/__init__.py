"""Small instances proved: the cheapest GPUs that can serve everything, and that none cheaper can.

The cost of a plan that serves everything is the price of its GPUs, so it takes few values. The choices of GPUs are
gone through from the cheapest on, and of each it is proved that it cannot serve everything, or found how it can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.planning.exact.patterns import Codes, Patterns, choices
from solvers.planning.exact.placements import ExactPlacements, ExactResident, exact_placements
from solvers.planning.exact.scope import applies, is_whole
from solvers.planning.exact.search import ENOUGH, ExactSearch
from solvers.planning.search.tables import Floats, Ints, Tables

__all__ = ["ExactPlacements", "ExactProof", "ExactResident", "applies", "prove"]

SLICE = 100  # branches between two reports
LIMITS = (30_000, 1_000_000)  # patterns of a pool: few to find an answer among, then all


@dataclass(frozen=True, slots=True)
class ExactProof:
    """What is known so far. `stands` is an optimal plan, once there is one."""

    bound: float
    stands: tuple[ExactPlacements, ...] | None
    proved: bool
    work: int


def prove(t: Tables, work: int | None = None) -> Iterator[ExactProof]:
    """Ever better bounds until the optimum is proved or the work is done."""
    space = Patterns(t)
    lost = np.flatnonzero(~space.served)
    sure = float((t.unserved_price[lost] * np.maximum(t.rate[lost], 1.0)).sum())
    if not space.served.any():
        yield ExactProof(sure, (), True, 0)
        return
    # Beyond those that nothing serves, a plan leaves something out, at this price at least, or serves everything.
    most = sure + float(t.unserved_price[space.served].min())
    goal = most * (1 - 1e-12)
    chosen, costs = choices(t, np.array([pool.price_per_hour + _idle_price(t, pool.gpu_type) for pool in t.pools]))
    refuted = np.zeros(len(chosen), dtype=np.bool_)
    begin = space.served / space.served.sum()
    spent, level, settled = 0, 0.0, True
    for number, cost, at in zip(chosen, costs, range(len(chosen)), strict=True):
        if refuted[at]:
            continue
        if settled:
            level = sure + float(cost)
        if sure + cost >= goal:
            break
        yield ExactProof(level, None, False, spent)
        if work is not None and spent >= work:
            return
        v, worth, rounds = space.priced(number, ENOUGH, begin)
        spent += rounds
        refuted |= chosen @ space.worths(v, range(len(worth))) < ENOUGH - 1e-9
        if refuted[at]:
            continue
        for limit in LIMITS:
            allowed = _allowed(space, number, v, worth, limit)
            search = ExactSearch([rates for _, _, rates in allowed.gpus], v[space.served])
            verdict = search.run(0)
            while verdict == "open" and (work is None or spent + search.work < work):
                verdict = search.run(SLICE)
                yield ExactProof(level, None, False, spent + search.work)
            spent += search.work
            if verdict != "no" or allowed.is_whole:
                break
        if verdict == "yes":
            whole = is_whole(t)
            picked = [(pool, codes[p]) for (pool, codes, _), p in zip(allowed.gpus, search.chosen, strict=True)]
            yield ExactProof(level, exact_placements(t, space, picked) if whole else None, settled and whole, spent)
            return
        if verdict == "no" and allowed.is_whole:
            refuted |= (chosen <= number).all(axis=1)
        else:
            settled = False
    else:
        level = most if settled else level
    yield ExactProof(min(level, most), None, False, spent)


def _idle_price(t: Tables, gpu_type: str) -> float:
    return t.problem.gpu_types[gpu_type].idle_w / 1000 * t.problem.policy.energy_price_per_kwh


@dataclass(frozen=True, slots=True)
class CandidatePatterns:
    """Patterns that could be part of an answer; not whole where there were too many."""

    gpus: list[tuple[int, Codes, Floats]]  # of each GPU: its pool, its patterns, what they carry exactly
    is_whole: bool


def _allowed(space: Patterns, number: Ints, v: Floats, worth: Floats, limit: int) -> CandidatePatterns:
    """Beside the best of all other GPUs, a pattern worth less than this leaves something unserved."""
    slack = float(number @ worth) - ENOUGH
    gpus: list[tuple[int, Codes, Floats]] = []
    is_whole = True
    for pool in np.flatnonzero(number):
        found, all_of_them = space.worth_least(int(pool), v, float(worth[pool]) - slack - 1e-8, limit)
        if not all_of_them:  # the better ones are likelier to be part of an answer
            is_whole = False
            for part_of_slack in (0.5, 0.2, 0.05):
                better, all_of_them = space.worth_least(
                    int(pool), v, float(worth[pool]) - part_of_slack * slack - 1e-8, limit
                )
                found = better if len(better) else found
                if all_of_them:
                    break
        rates, _ = space.exact(int(pool), found)
        if not len(found):
            found, rates = np.full((1, found.shape[1]), -1, dtype=np.int32), np.zeros((1, len(v)))
        part = np.ascontiguousarray(rates[:, space.served])
        gpus += [(int(pool), found, part)] * int(number[pool])
    return CandidatePatterns(gpus, is_whole)
