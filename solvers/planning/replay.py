"""Finds a plan again by the number of steps that it took, on any machine, however long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from solvers.planning.beside import has_language_models
from solvers.planning.drafting.drafts import AskRivals, SearchDraft
from solvers.planning.exact import ExactProof
from solvers.planning.finish import finish_plan
from solvers.planning.mixed import choose_models
from solvers.planning.parts import divide_services
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import AskOthers
from solvers.planning.problem import Problem
from solvers.planning.proofs import BOUND_STEPS, draft_proved, proofs
from solvers.planning.replan.search import search
from solvers.planning.rivals import finish_rival, least_rival, rivals_of
from solvers.planning.search.tables import Tables, tables
from solvers.planning.solve import draft_plan
from solvers.proof import SolverBug


def replay_plan(problem: Problem, seed: int, work: int, *, is_exact: bool, others: AskOthers | None = None) -> Plan:
    """Returns the plan whose draft came after this many steps, whatever ended the first search.

    Its bound is not computed again: another process found it, and the plan does not depend on it.
    """
    if has_language_models(problem):
        models = choose_models(problem, seed, draft_plan)
        plan = models.join(replay_plan(models.rest, seed, work, is_exact=is_exact, others=others))
        assert plan.certificate
        return replace(plan, certificate=replace(plan.certificate, work=work))
    division = divide_services(problem)
    t = tables(division.problem if division else problem)
    rivals = rivals_of(problem, division, others)
    draft = next((draft for draft in _made(t, seed, work, is_exact, rivals) if draft.work >= work), None)
    if draft is None or draft.work > work:
        search = "the exact search" if is_exact else f"the search with seed {seed}"
        raise SolverBug(f"{search} finds no plan at step {work}")
    if draft.rivals:
        best = least_rival(problem, draft.rivals)
        assert best
        plan = finish_rival(problem, best, None, "")
    else:
        plan = finish_plan(t, draft, None, draft.method, division)
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, work=work))


def _made(t: Tables, seed: int, work: int, is_exact: bool, rivals: AskRivals | None) -> Iterator[SearchDraft]:
    """Yields drafts in the order in which they were found, at most one a step."""
    if not is_exact:
        made = search(t, seed, rivals)
        yield from (draft for draft in made if draft.method or draft.rivals or draft.work > work)
        return
    for proof in proofs(t, work * BOUND_STEPS):
        if isinstance(proof, ExactProof) and (draft := draft_proved(t, proof)):
            yield draft
