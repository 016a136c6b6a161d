"""A plan that was found before, found again by the steps that it took: on any machine, however long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from solvers.planning import exact
from solvers.planning.finish import finish_plan
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.drafts import SearchDraft, drafts, prepare
from solvers.planning.search.tables import Tables, tables
from solvers.planning.solve import BOUND_WORK, proved
from solvers.proof import SolverBug


def replay_plan(problem: Problem, seed: int, work: int, *, is_exact: bool) -> Plan:
    """The plan whose draft came after so many steps, whoever ended the search then and whatever ran beside it.

    Its bound is not found again: another process found it, and it changes nothing of the plan.
    """
    t = tables(problem)
    draft = next((draft for draft in _made(t, seed, work, is_exact) if draft.work >= work), None)
    if draft is None or draft.work > work:
        who = "the exact search" if is_exact else f"seed {seed}"
        raise SolverBug(f"{who} finds no plan with its step {work}")
    plan = finish_plan(t, draft, None, draft.method)
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, work=work))


def _made(t: Tables, seed: int, work: int, is_exact: bool) -> Iterator[SearchDraft]:
    """Plans in the order in which they were found; one at most comes with a step."""
    if not is_exact:
        yield from (draft for draft in drafts(prepare(t), seed) if draft.method or draft.work > work)
        return
    for proof in exact.prove(t, work * BOUND_WORK):
        if draft := proved(t, proof):
            yield draft
