"""Proves small instances: finds the cheapest GPUs that can serve everything, and that no cheaper ones can.

The cost of a plan that serves everything is the price of the GPUs and nodes that it pays for, so it takes few values.
The search goes through the choices of paid GPUs from the cheapest on. Of each it proves that it cannot serve
everything, or finds how it can. What is hard to decide waits for the next pass, which looks at more patterns: an answer
is found soon, and cheaper ones later.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

import numpy as np

from solvers.planning.exact.candidates import CandidatePatterns, Pass, list_candidates
from solvers.planning.exact.open_choices import OpenChoices, PricedChoice
from solvers.planning.exact.patterns import Codes, Patterns
from solvers.planning.exact.placements import exact_placements, needed
from solvers.planning.exact.scope import applies, is_whole
from solvers.planning.exact.search import ExactSearch, Verdict
from solvers.planning.search.realise import NOBODY, PlacedInstances
from solvers.planning.search.tables import Tables

__all__ = ["ExactProof", "applies", "prove"]

# Work is counted in steps of about a millisecond.
ROUND_STEPS = 20  # of work, for a round of prices
LIST_STEPS = 150_000  # of a list of patterns, for each step of work
SLICE_STEPS = 100  # of work, between two reports
GROWTH = 8  # of the steps, from the last of the passes to the next
PASSES = (Pass(20_000, 2, 600), Pass(60_000, 2, 2_500), Pass(250_000, 1, 10_000), Pass(1_000_000, 1, 40_000))


@dataclass(frozen=True, slots=True)
class ExactProof:
    """The result so far: a bound and, with some, a plan.

    Once that is proved, the last plan is optimal, or without any the plan that was known.
    """

    bound: float
    placed: PlacedInstances | None
    proved: bool
    work: int
    cost: float = 0.0  # of the plan
    unjudged: PlacedInstances | None = None  # a plan that obeys the rules that the search covers, if others may bind


def prove(t: Tables, work: int | None = None, least: float = 0.0, known: float = inf) -> Iterator[ExactProof]:
    """Yields better and better bounds, and plans, until the optimum is proved or the work is done.

    It is proved already that no plan costs less than `least`, so GPUs that cost less cannot serve everything. A plan
    of the cost `known` was found by others: only cheaper ones are looked for.
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
    search = _PassSearch(space, OpenChoices(space, sure, min(most, known), least), work)
    for each in chain(PASSES, _longer(PASSES[-1])):
        is_open = yield from search.run(each)
        if search.is_done() or search.choices.is_settled or not (is_open or each in PASSES[:-1]):
            break
    last = search.report()
    if search.choices.is_settled and known < most and not search.answer:
        last = replace(last, proved=True)
    elif search.choices.is_settled and search.answer:
        last = replace(search.answer, bound=last.bound, work=last.work, proved=is_whole(t))
    yield last


def _longer(last: Pass) -> Iterator[Pass]:
    while True:
        last = replace(last, steps=GROWTH * last.steps)
        yield last


class _PassSearch:
    """Decides the open choices of GPUs, pass after pass, and keeps the cheapest answer."""

    def __init__(self, space: Patterns, choices: OpenChoices, work: int | None) -> None:
        self.choices = choices
        self.answer: ExactProof | None = None
        self._space, self._work, self._searched = space, work, 0

    def _list(self, choice: PricedChoice, how: Pass) -> CandidatePatterns:
        """Lists the patterns of a choice, in no more steps than are left. Then there are none left to search them."""
        if self._work is not None:
            self._space.most_steps = self._space.steps + LIST_STEPS * (self._work - self.spent)
        return list_candidates(self._space, choice, how)

    @property
    def spent(self) -> int:
        return self._searched + ROUND_STEPS * self.choices.rounds + int(self._space.steps / LIST_STEPS)

    def is_done(self, more: int = 0) -> bool:
        return self._work is not None and self.spent + more >= self._work

    def report(self, more: int = 0) -> ExactProof:
        return ExactProof(self.choices.level, None, False, self.spent + more)

    def run(self, how: Pass) -> Generator[ExactProof, None, bool]:
        """Looks at each open choice that is cheaper than the answer; tells if more steps may decide more."""
        is_open = False
        for at in self.choices:
            yield self.report()
            if self.is_done():
                return False
            choice = self.choices.priced(at)
            if choice.is_refuted:
                continue
            verdict, picked, may_go_on = yield from self._decide(choice, how)
            is_open = is_open or may_go_on
            if verdict == "no":
                self.choices.refute(choice.number)
            elif verdict == "yes":
                yield self._take(needed(self._space, picked, choice.prices))
        return is_open

    def _decide(
        self, choice: PricedChoice, how: Pass
    ) -> Generator[ExactProof, None, tuple[Verdict, list[tuple[int, Codes]], bool]]:
        """Decides if so many GPUs of each pool can serve everything, and tells if more steps may decide it.

        "yes" comes with the pool and pattern of each GPU.
        """
        found = self._list(choice, how)
        served = self._space.served
        search = ExactSearch(
            [pool.rates for pool in found.pools], [pool.number for pool in found.pools], choice.prices[served]
        )
        verdict: Verdict = "open"
        while verdict == "open" and search.work < how.steps and not self.is_done(search.work):
            verdict = search.run(SLICE_STEPS)
            yield self.report(search.work)
        self._searched += search.work
        if verdict == "yes":
            return verdict, [(found.pools[at].pool, found.pools[at].codes[p]) for at, p in search.chosen], False
        if verdict == "no" and not found.is_whole:
            return "open", [], False
        return verdict, [], verdict == "open"

    def _take(self, picked: list[tuple[int, Codes]]) -> ExactProof:
        t = self._space.t
        used = np.bincount([pool for pool, _ in picked], minlength=len(t.pools))
        self.choices.ceiling = self.choices.cost_of(used)
        placed = exact_placements(t, self._space, picked)
        right, unjudged = (placed, None) if is_whole(t) else (None, placed)
        self.answer = ExactProof(self.choices.level, right, False, self.spent, self.choices.ceiling, unjudged)
        return self.answer
