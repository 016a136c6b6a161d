"""Solves a problem: finds the best plan that the budget allows, judges it and gives it a bound.

This process makes the first plan. A second process improves it and a third one raises the bound; if either dies, the
last plan received is used. The judge checks every plan before it is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from solvers.planning import bound, exact
from solvers.planning.finish import about_bound, finish_plan
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.drafts import SearchDraft, drafts, prepare
from solvers.planning.search.realise import PlacedInstances
from solvers.planning.search.tables import Tables, tables
from solvers.planning.workers import Worker, gather, run_in_turn

CLOSED_SHARE = 1e-6  # of a cost: a smaller gap counts as none
EXACT = "exact"
FIRST_DRAFT_SECONDS = 1.0  # for improving the first draft, even if the budget has fewer
BOUND_STEPS = 2_000  # of the bound, for each step of the planner
Progress = Callable[[float, float, float | None, str], None]  # seconds, cost, bound, method


@dataclass(frozen=True, slots=True)
class SolveBudget:
    """Limits a search: by steps of work, which are the same on every machine, and by seconds."""

    seconds: float | None = 10.0
    work: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FinishedPlan:
    """A message from a worker: a plan, a bound, or that no better bound will come."""

    draft: SearchDraft | None = None
    bound: float | None = None
    proof: str = ""  # how the bound was found, for the method text
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class SolvedPlan:
    """A plan, and what finds it again on any machine: see `replay_plan`."""

    plan: Plan
    work: int  # steps to its draft
    is_exact: bool  # they are the exact planner's steps
    is_cut: bool  # the seconds ended the search


def solve(problem: Problem, budget: SolveBudget = SolveBudget(), on_better: Progress | None = None) -> Plan:
    """Returns the cheapest valid plan found within the budget, with its certificate."""
    return find(problem, budget, on_better).plan


def find(
    problem: Problem, budget: SolveBudget = SolveBudget(), on_better: Progress | None = None, *, alone: bool = False
) -> SolvedPlan:
    """Returns the plan of `solve` and how it was found. `alone` does the same work in turn, without forking."""
    if alone and budget.work is None:
        raise ValueError("alone needs a limit of work: budget.work is None")
    began = time.monotonic()
    deadline = None if budget.seconds is None else began + budget.seconds
    t = tables(problem)
    bounding = Worker("bound", _bounds(t, budget.work))
    pays = bool(len(t.services) and t.pools) and budget.work != 0 and (budget.seconds is None or budget.seconds > 0)
    if pays and not alone:
        bounding.start()
    try:
        making = drafts(prepare(t), budget.seed)
        best, known = _first(making, deadline, began), None
    except BaseException:
        bounding.stop()
        raise
    notes, of_bound, is_bounded = "", "", False
    is_cut = budget.seconds is not None and budget.seconds <= 0

    def report() -> None:
        if on_better:
            on_better(time.monotonic() - began, best.cost, known, best.method)

    report()
    if not t.pools:
        known = best.cost
    elif pays:
        # The planner continues after the first plan: a forked process has all data that this one has.
        workers = [Worker("planner", _plans(making, budget.work)), bounding]
        claim: FinishedPlan
        for claim in run_in_turn([bounding, workers[0]]) if alone else gather(workers, deadline):
            before = (best.cost, known)
            if claim.draft and _is_better(claim.draft, best):
                best = claim.draft
            if claim.bound is not None and (known is None or claim.bound >= known):
                known, of_bound = claim.bound, claim.proof
            is_bounded = is_bounded or claim.is_last
            if before != (best.cost, known):
                report()
            # Counted work must give the same plan whichever process is faster: wait for all results of the bound.
            if known is not None and _closed(best.cost, known) and (is_bounded or budget.work is None):
                notes, of_bound = notes + "; proved", ""
                break
        else:
            is_cut = deadline is not None and time.monotonic() >= deadline
            if is_cut and budget.work is not None:
                notes += "; cut short by the time limit"
        for worker in workers:
            if worker.failed:
                notes += f"; the {worker.name} process died; its results so far are used"
    plan = finish_plan(t, best, known, best.method + notes + of_bound)
    certificate = plan.certificate
    assert certificate
    plan = replace(plan, certificate=replace(certificate, work=best.work, seconds=time.monotonic() - began))
    return SolvedPlan(plan, best.work, best.method == EXACT, is_cut)


def _closed(cost: float, bound: float) -> bool:
    return cost - bound <= CLOSED_SHARE * max(1.0, cost)


def _is_better(draft: SearchDraft, best: SearchDraft) -> bool:
    """Tells if the draft is cheaper by more than rounding; of two drafts of the same cost, the proved one is better."""
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
        if draft.method:
            yield FinishedPlan(draft=draft)


def _bounds(t: Tables, work: int | None) -> Iterator[FinishedPlan]:
    most = None if work is None else work * BOUND_STEPS
    is_proved = False
    if exact.applies(t):
        for proof in exact.prove(t, most):
            yield FinishedPlan(
                draft=proved(t, proof), bound=proof.bound, proof=f"; bound {proof.bound:.6g} from the exact search"
            )
            is_proved = proof.proved
    if is_proved:
        yield FinishedPlan(is_last=True)
        return
    left_out = bound.left_out(t)
    for found in bound.rounds(t, most):
        yield FinishedPlan(bound=found.bound, proof=about_bound(found, left_out))
    yield FinishedPlan(is_last=True)


def proved(t: Tables, proof: exact.ExactProof) -> SearchDraft | None:
    """Returns the exact planner's plan, once it has found it."""
    steps = -(-proof.work // BOUND_STEPS)
    return SearchDraft(_placed(t, proof.stands), proof.bound, steps, EXACT) if proof.stands else None


def _placed(t: Tables, stands: tuple[exact.ExactPlacements, ...]) -> PlacedInstances:
    """Converts what the exact planner found to the arrays of a board."""
    start = [0]
    for pool in t.pools:
        start.append(start[-1] + len(pool.gpus))
    rows = [
        (
            start[stand.pool] + stand.index,
            resident.offer,
            resident.sm_percent,
            resident.batch,
            resident.rate_per_second,
            t.problem.gpu_types[t.pools[stand.pool].gpu_type].top_clock_mhz / stand.clock_mhz,
        )
        for stand in stands
        for resident in stand.residents
    ]
    gpu, offer, sm, batch, cap, clock = (np.array(column) for column in zip(*rows, strict=True))
    return PlacedInstances(gpu, offer, sm, batch, cap, clock)
