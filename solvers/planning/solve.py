"""Solves a problem: finds the best plan that the budget allows, judges it and gives it a bound.

This process makes the first plan. A second process improves it and a third one raises the bound; if either dies, the
last plan received is used. The judge checks every plan before it is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf

from solvers.planning import bound
from solvers.planning.beside import has_language_models, ordinary, report_with_models
from solvers.planning.drafting.drafts import SearchDraft
from solvers.planning.duals import Duals
from solvers.planning.exact import ExactProof
from solvers.planning.finish import about_bound, finish_plan, sound_bound
from solvers.planning.kept_search import KeptSearch
from solvers.planning.mixed import MixedCase, choose_models, has_rest
from solvers.planning.parts import divide_services
from solvers.planning.parts.bound import relax_to_needed
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import AskOthers, RivalPlan
from solvers.planning.problem import Problem
from solvers.planning.proofs import BOUND_STEPS, EXACT, draft_proved, proofs
from solvers.planning.replan.search import laid_over, search
from solvers.planning.rivals import cheaper_rival, finish_rival, rivals_of
from solvers.planning.search.realise import serves_all
from solvers.planning.search.tables import Tables, tables
from solvers.planning.shortfalls import add_shortfalls
from solvers.planning.solved import TEN_SECONDS
from solvers.planning.solved import FoundBound as FoundBound
from solvers.planning.solved import Progress as Progress
from solvers.planning.solved import SearchStatus as SearchStatus
from solvers.planning.solved import SolveBudget as SolveBudget
from solvers.planning.solved import SolvedPlan as SolvedPlan
from solvers.planning.workers import Worker, gather, run_in_turn

CLOSED_SHARE = 1e-6  # of a cost: a smaller gap counts as none
GAIN_SHARE = 1e-2  # of the gap to the bound: a search that closes less has stopped improving
FIRST_PLANS = 3.0  # times that the first plan took: so long a search may find nothing, on a slow machine
FIRST_DRAFT_SECONDS = 1.0  # for improving the first draft, even if the budget has fewer
ASKING_STEPS = 1  # in which others are asked: the search itself loses none


@dataclass(frozen=True, slots=True)
class FinishedPlan:
    """A message from a worker: a plan, a bound, or that no better bound will come."""

    draft: SearchDraft | None = None
    bound: float | None = None
    proof: str = ""  # how the bound was found, for the method text
    programme: float | None = None  # what the linear programme behind it costs
    duals: Duals | None = None  # for other rates
    kept: KeptSearch | None = None  # for the next search
    is_last: bool = False
    is_proof: bool = False  # of the least cost, though beside what runs a dearer plan may be worth more


def solve(
    problem: Problem, budget: SolveBudget = TEN_SECONDS, on_better: Progress | None = None,
    others: AskOthers | None = None,
) -> Plan:  # fmt: skip
    """Returns the cheapest valid plan found within the budget, with its certificate."""
    return add_shortfalls(problem, find(problem, budget, on_better, others=others).plan, budget)


class _Patience:
    """Keeps the time at which a search ends: its deadline, or earlier once its plan has stopped improving."""

    def __init__(self, budget: SolveBudget, began: float, cost: float) -> None:
        now = time.monotonic()
        self._deadline = inf if budget.seconds is None else began + budget.seconds
        self._patience = max(budget.patience_seconds, FIRST_PLANS * (now - began))
        self._cost, self._gained_at = cost, now

    def look_at(self, cost: float, bound: float | None) -> None:
        """Notes a cost; a saving too small to matter does not prolong the search.

        The gap is the measure, for a cost may hold penalties that no plan avoids, beside which all savings are small.
        """
        if self._cost - cost > GAIN_SHARE * (self._cost - (bound or 0.0)):
            self._cost, self._gained_at = cost, time.monotonic()

    def ends_at(self) -> float:
        return min(self._deadline, self._gained_at + self._patience)


@dataclass
class _BestFound:
    """The best draft and the highest bound so far."""

    draft: SearchDraft
    bound: float | None = None
    proof: str = ""  # how the bound was found
    programme: float | None = None
    duals: Duals | None = None
    kept: KeptSearch | None = None
    is_last_bound: bool = False
    rivals: tuple[RivalPlan, ...] | None = None  # none yet
    rivals_work: int = 0  # steps to them

    def take(self, claim: FinishedPlan) -> bool:
        """Keeps what is better, and tells if that changes anything."""
        before = (self.draft.cost, self.bound)
        if claim.draft and _is_better(claim.draft, self.draft):
            self.draft = claim.draft
        if claim.draft and claim.draft.rivals is not None:
            self.rivals, self.rivals_work = claim.draft.rivals, claim.draft.work
        if claim.bound is not None and (self.bound is None or claim.bound >= self.bound):
            self.bound, self.proof, self.programme = claim.bound, claim.proof, claim.programme
        self.duals, self.kept = claim.duals or self.duals, claim.kept or self.kept
        self.is_last_bound = self.is_last_bound or claim.is_last
        return before != (self.draft.cost, self.bound)

    @property
    def is_proved(self) -> bool:
        cost = self.draft.cost
        return self.bound is not None and cost - self.bound <= CLOSED_SHARE * max(1.0, cost)

    @property
    def kept_duals(self) -> Duals | None:
        """Returns the prices with the best bound at the problem's own rates, which higher rates cannot lower."""
        return replace(self.duals, found=self.bound) if self.duals and self.bound is not None else None


def find(
    problem: Problem, budget: SolveBudget = TEN_SECONDS, on_better: Progress | None = None, *, alone: bool = False,
    others: AskOthers | None = None, kept: KeptSearch | None = None,
) -> SolvedPlan:  # fmt: skip
    """Returns the plan of `solve` and how it was found. `alone` does the same work in turn, without forking.

    With `others` the plan costs no more than theirs, unless the budget ends before they are asked. The search for the
    bound begins with what an earlier one kept.
    """
    if alone and budget.work is None:
        raise ValueError("alone needs a limit of work: budget.work is None")
    if has_language_models(problem):
        return _find_beside_models(problem, budget, on_better, alone=alone, others=others)
    began = time.monotonic()
    deadline = None if budget.seconds is None else began + budget.seconds
    division = divide_services(problem)
    t = tables(division.problem if division else problem)
    bounded = t if division is None else tables(relax_to_needed(problem))
    bounding = Worker("bound", _bounds(bounded, budget.work, kept))
    pays = (
        bool(len(bounded.services) and t.pools) and budget.work != 0 and (budget.seconds is None or budget.seconds > 0)
    )
    if pays and not alone:
        bounding.start()
    try:
        making = search(t, budget.seed, rivals_of(problem, division, others))
        best = _BestFound(_first(making, deadline, began))
    except BaseException:
        bounding.stop()
        raise

    def report() -> None:
        if on_better:
            draft, is_complete = best.draft, serves_all(t, best.draft.placed)
            on_better(SearchStatus(time.monotonic() - began, draft.cost, best.bound, draft.method, is_complete))

    report()
    patience = _Patience(budget, began, best.draft.cost)
    notes, is_cut = "", budget.seconds is not None and budget.seconds <= 0
    if not t.pools:
        best.bound = best.draft.cost
    elif pays:
        # The planner continues after the first plan: a forked process has all data that this one has.
        workers = [Worker("planner", _plans(making, budget.work)), bounding]
        with closing(run_in_turn([bounding, workers[0]]) if alone else gather(workers, patience.ends_at)) as claims:
            is_counted, asks = budget.work is not None, others is not None
            is_proved = _follow(claims, best, patience, report, is_counted=is_counted, asks=asks)
        is_cut = not is_proved and deadline is not None and time.monotonic() >= deadline
        notes = _notes(workers, is_proved=is_proved, is_short=is_cut and budget.work is not None)
        if is_proved:
            best.proof = ""
    plan = finish_plan(t, best.draft, best.bound, best.draft.method + notes + best.proof, division)
    work, is_exact = best.draft.work, best.draft.method == EXACT
    if (rival := cheaper_rival(problem, plan, best.rivals or ())) is not None:
        plan, work, is_exact = finish_rival(problem, rival, best.bound, notes + best.proof), best.rivals_work, False
    assert plan.certificate
    certificate = plan.certificate.add_programme(best.programme)
    seconds, about = time.monotonic() - began, tuple(each.about for each in best.rivals or ())
    plan = replace(plan, certificate=replace(certificate, work=work, seconds=seconds, others=about))
    return SolvedPlan(plan, work, is_exact, is_cut, best.kept_duals, best.kept)


def find_bound(problem: Problem, budget: SolveBudget, *, alone: bool = False) -> FoundBound:
    """Returns the best bound that the budget proves, for a plan that was found by other means. `alone` never forks."""
    if has_language_models(problem):
        if budget.work == 0 or (budget.seconds is not None and budget.seconds <= 0):
            return FoundBound()
        least = find_bound(ordinary(problem), budget, alone=alone).bound if has_rest(problem) else None
        return FoundBound(MixedCase(problem).bound(least))
    deadline = None if budget.seconds is None else time.monotonic() + budget.seconds
    division = divide_services(problem)
    t = tables(problem if division is None else relax_to_needed(problem))
    if not (len(t.services) and t.pools) or budget.work == 0:
        return FoundBound()
    worker, found = Worker("bound", _bounds(t, budget.work)), FoundBound()
    with closing(run_in_turn([worker]) if alone else gather([worker], deadline)) as claims:
        for claim in claims:
            if claim.bound is not None and (found.bound is None or claim.bound >= found.bound):
                found = FoundBound(claim.bound, claim.proof, claim.duals or found.duals, claim.programme)
    if found.duals is None or found.bound is None:
        return found
    return replace(found, duals=replace(found.duals, found=found.bound))


def draft_plan(problem: Problem, budget: SolveBudget) -> Plan:
    """Returns the plan of counted work, found in this process."""
    return find(problem, budget, alone=True).plan


def _find_beside_models(
    problem: Problem, budget: SolveBudget, on_better: Progress | None, *, alone: bool, others: AskOthers | None
) -> SolvedPlan:
    """Returns the cheapest plan found of language models and everything else, with its bound."""
    began = time.monotonic()
    models = choose_models(problem, budget.seed, draft_plan)
    left = None if budget.seconds is None else max(0.0, budget.seconds - (time.monotonic() - began))
    callback = on_better and report_with_models(problem, models.instances, on_better)
    for_rest, for_bound = (replace(budget, seconds=None if left is None else share * left) for share in (0.6, 0.4))
    found = find(models.rest, for_rest, callback, alone=alone, others=others)
    plan = models.join(found.plan)
    assert plan.certificate
    bound, note = sound_bound(find_bound(problem, for_bound, alone=alone).bound, plan.certificate.cost.total)
    method, seconds = f"{plan.certificate.method}{note}", time.monotonic() - began
    certificate = replace(plan.certificate, bound=bound, method=method, work=found.work, seconds=seconds, others=())
    return SolvedPlan(replace(plan, certificate=certificate), found.work, found.is_exact, found.is_cut)


def _follow(
    claims: Iterator[FinishedPlan], best: _BestFound, patience: _Patience, report: Callable[[], None], *,
    is_counted: bool, asks: bool,
) -> bool:  # fmt: skip
    """Takes what the workers find until it is proved and those asked have answered; tells if it is proved."""
    for claim in claims:
        if best.take(claim):
            patience.look_at(best.draft.cost, best.bound)
            report()
        # Counted work must give the same plan whichever process is faster: wait for all results of the bound.
        if best.is_proved and (best.is_last_bound or not is_counted) and (best.rivals is not None or not asks):
            return True
        if claim.is_proof and not is_counted:
            break
    return best.is_proved and (best.is_last_bound or not is_counted)


def _notes(workers: list[Worker], *, is_proved: bool, is_short: bool) -> str:
    """Returns what the method text adds on how the search ended."""
    notes = "; proved" if is_proved else ""
    notes += "; cut short by the time limit" if is_short else ""
    for worker in workers:
        if worker.failed:
            notes += f"; the {worker.name} process died; its results so far are used"
    return notes


def _is_better(draft: SearchDraft, best: SearchDraft) -> bool:
    """Returns whether the draft is cheaper by more than rounding; at equal cost, a proved draft is better."""
    if draft.method == EXACT:
        return draft.cost <= best.cost + CLOSED_SHARE * max(1.0, best.cost)
    return draft.cost < best.cost - CLOSED_SHARE * max(1.0, best.cost)


def _first(making: Iterator[SearchDraft], deadline: float | None, began: float) -> SearchDraft:
    """Returns the first draft that serves everything, or else the best of those that the time allows."""
    best: SearchDraft | None = None
    for draft in making:
        if best is None or draft.cost < best.cost:
            best = draft
        if draft.ends_the_beginning or (deadline and time.monotonic() > max(deadline, began + FIRST_DRAFT_SECONDS)):
            break
    assert best, "the planner always makes a first draft"
    return best


def _plans(making: Iterator[SearchDraft], work: int | None) -> Iterator[FinishedPlan]:
    for draft in making:
        if work is not None and draft.work > work:
            return
        if work is not None and draft.rivals:
            work += ASKING_STEPS
        if draft.method or draft.rivals is not None:
            yield FinishedPlan(draft=draft)


def _bounds(t: Tables, work: int | None, kept: KeptSearch | None = None) -> Iterator[FinishedPlan]:
    left_out, sent = bound.left_out(t), kept
    for found in proofs(t, None if work is None else work * BOUND_STEPS, kept):
        if isinstance(found, ExactProof):
            text = f"; bound {found.bound:.6g} from the exact search"
            draft = draft_proved(t, found)
            yield FinishedPlan(
                draft=draft and laid_over(t, draft), bound=found.bound, proof=text, is_proof=found.proved
            )
        else:
            fresh = None if found.kept is sent else found.kept
            sent = found.kept
            proof, programme = about_bound(found, left_out), found.programme if found.programme < inf else None
            yield FinishedPlan(bound=found.bound, proof=proof, programme=programme, duals=found.duals, kept=fresh)
    yield FinishedPlan(is_last=True)
