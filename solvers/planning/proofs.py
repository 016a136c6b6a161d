"""Bounds a problem, and proves it where it is small enough: by prices first, then by the exact search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from math import inf

from solvers.planning import bound, exact
from solvers.planning.drafting.drafts import SearchDraft, drafts, prepare
from solvers.planning.finish import finish_plan
from solvers.planning.kept_search import KeptSearch
from solvers.planning.search.tables import Tables

EXACT = "exact"
BOUND_STEPS = 8_000  # of the bound, for each step of the planner: about the same time
EXACT_STEPS = 1_800  # of the bound, for each step of the exact search of many services: about the same time
FIRST_BOUND_WORK = 60_000  # steps of the bound before an exact search of few services: a tenth of a second
SET_UP_WORK = 600_000  # steps of the bound in the time that an exact search of many services takes to begin
FEW_SERVICES = 6
ROUGH_STEPS = 100  # of the planner, for a plan that the exact search of many services has to beat
CLOSED_SHARE = 1e-6  # of a cost: a plan that costs more than this beyond its proof is not the one proved


def proofs(t: Tables, work: int | None, kept: KeptSearch | None = None) -> Iterator[bound.Round | exact.ExactProof]:
    """Yields better and better bounds, and the plan of the exact search once it has one.

    What an earlier search kept is used where no exact search follows: its course depends on the bound it begins at.

    The exact search begins at what prices have proved: of few services soon, of more when the prices have converged.
    Where energy has a price, it begins at nothing: what prices prove is paid for energy, too, and not for GPUs alone.
    """
    found: bound.Round | None = None
    is_few = len(t.services) <= FEW_SERVICES
    # The exact search takes the same course whatever the limit of work: what it begins at does not depend on it.
    most_bound = max(work, FIRST_BOUND_WORK) if is_few and work is not None and exact.applies(t) else work
    rounds = bound.rounds(t, most_bound, None if exact.applies(t) else kept)
    for found in rounds:
        yield found
        if is_few and found.work >= FIRST_BOUND_WORK:
            break
    before = found.work if found is not None else 0
    before += 0 if is_few else SET_UP_WORK + ROUGH_STEPS * BOUND_STEPS
    pays = is_few or (found is not None and found.converged and (work is None or work > before))
    if exact.applies(t) and pays:
        scale = 1 if is_few else EXACT_STEPS
        most = work if is_few or work is None else max(work - before, 0) // scale
        is_proved, planned_at, last = False, -BOUND_STEPS, None
        is_for_gpus = found is not None and t.problem.policy.energy_price_per_kwh == 0
        known = inf if is_few else _rough_cost(t)
        for proof in exact.prove(t, most, found.bound if found is not None and is_for_gpus else 0.0, known):
            at = proof.work if is_few else before + proof.work * scale
            if (plan := proof.placed or proof.unjudged) is not None:  # found again by its step: no two have the same
                planned_at = planned_at if plan is last else max(at, planned_at + BOUND_STEPS)
                last, at = plan, planned_at
            yield replace(proof, work=at)
            is_proved = proof.proved
        if is_proved:
            return
    yield from rounds


def _rough_cost(t: Tables) -> float:
    """Returns what the best plan of a short search costs, so that nothing dearer is proved."""
    made = takewhile(lambda draft: draft.work <= ROUGH_STEPS, drafts(prepare(t), seed=0))
    return min((draft.cost for draft in made), default=inf)


def draft_proved(t: Tables, proof: exact.ExactProof) -> SearchDraft | None:
    """Returns the exact planner's plan, once it has found it; of rules that it does not cover the judge decides.

    Where services are divided for their availability or accuracy it returns none: its plan is not one of their parts.
    """
    services = t.problem.services.values()
    if any(s.mean_accuracy or s.availability.binds(s.min_instances) for s in services):
        return None
    steps = -(-proof.work // BOUND_STEPS)
    if proof.placed:
        return SearchDraft(proof.placed, proof.cost, steps, EXACT)
    if not proof.unjudged:
        return None
    draft = SearchDraft(proof.unjudged, proof.cost, steps, EXACT)
    plan = finish_plan(t, draft, None, EXACT)
    assert plan.certificate
    cost = plan.certificate.cost.total
    return draft if not plan.unserved and cost <= proof.cost * (1 + CLOSED_SHARE) else None
