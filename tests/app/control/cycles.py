"""One cycle of the planner alone."""

from __future__ import annotations

from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.last_question import CycleResult, LastQuestion
from app.control.domain.events import Reason
from app.control.domain.ports import PlanSolver
from app.control.observe.observer import ExpectLoads
from app.control.record.planner_store import PlannerStore


def one_cycle(
    store: PlannerStore, solver: PlanSolver, expecting: ExpectLoads, before: LastQuestion, budget: CycleBudget
) -> CycleResult:
    """Runs a cycle that only its period calls for, and that does nothing while the solver works."""
    return run_cycle(
        store, solver, store.snapshot(expecting), before, budget, Reason.CYCLE, lambda snapshot, question: None
    )
