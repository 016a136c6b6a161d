"""Asks for the decision of recorded cycles and judges what is to run after each of them.

A cycle is the outer question: all that was known at a moment, and what called for it. What the planner remembers from
cycle to cycle it learns by the cycles before it in the series. All that this knows of the planner stands here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.last_question import CycleResult, LastQuestion
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.desired import NodeDesired
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.record.planner_store import PlannerStore
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep
from tests.net.answers import Answer
from tests.net.corpus import Row, Series
from tests.net.counting import count_work
from tests.net.moments import DECLARED, read_snapshot
from tests.net.placements import list_placements
from tests.net.problems import describe
from tests.simulation.chaos import Failing

REASONS = {str(reason): reason for reason in Reason}
GUARD_SECONDS = 3600.0  # work bounds the search, and not this


class RecordedMoment(PlannerStore):
    """A store that knows one moment, and keeps what a cycle records."""

    def __init__(self, known: Snapshot) -> None:
        self.known = known
        self.recorded: Sequence[Decision] = ()
        self.outcome = ""

    def record(self, snapshot: Snapshot, decisions: Sequence[Decision], *rest: Any) -> tuple[int, ...]:
        self.recorded = decisions
        return tuple(snapshot.target + 1 + number for number in range(len(decisions)))

    def note(self, outcome: SolveOutcome, *rest: Any, **named: Any) -> None:
        self.outcome = str(outcome)

    def change_state(self, *rest: Any, **named: Any) -> None:
        pass


def answer_cycles(series: Series, is_counted: bool = True) -> list[Answer]:
    """Runs the cycles of a series in turn."""
    answers, before, documents = list[Answer](), LastQuestion(), series.head.documents
    budget = CycleBudget(GUARD_SECONDS, series.head.work, series.head.seed)
    for number, moment in enumerate(series.moments):
        documents = moment.get(DECLARED, documents)
        store = RecordedMoment(read_snapshot(moment, documents))
        result, counts = count_work(partial(_run, store, moment, before, budget), is_counted)
        before = result.last_question
        answers.append(_describe(f"{series.name}/{number:02}", store, result, counts))
    return answers


def _run(store: RecordedMoment, moment: Row, before: LastQuestion, budget: CycleBudget) -> CycleResult:
    solver = Failing()
    solver.outcomes = [SolveOutcome(moment["solver"])] if moment["solver"] else []
    reason = REASONS[moment["reason"]]
    measured = store.known.measured
    return run_cycle(store, solver, store.known, before, budget, reason, lambda *_: None, lambda: measured)


def _describe(name: str, store: RecordedMoment, result: CycleResult, counts: dict[str, int]) -> Answer:
    """Judges what is to run after the cycle, whether it recorded a plan or left the plan in force."""
    states = [str(decision.state) for decision in store.recorded]
    after: Mapping[str, NodeDesired] = store.recorded[-1].desired if store.recorded else store.known.in_force
    problem, plan = _read_plan(store.known, after)
    loads = {service: load.rate_per_second for service, load in store.known.expected.items()}
    _, ran = _read_plan(store.known, store.known.in_force)
    found = describe(name, problem, plan, judge(problem, plan, simulate=False, keeps=keep), counts, loads)
    shown = result.decision.plan.certificate if result.decision else None
    there, then = {*list_placements(plan, problem)}, {*list_placements(ran, problem)}
    lines = [*(f"- {line}" for line in sorted(then - there)), *(f"+ {line}" for line in sorted(there - then))]
    outcome, bound = "+".join(states) or store.outcome, shown.bound if shown else None
    return msgspec.structs.replace(found, outcome=outcome, bound=bound, placements=tuple(lines))


def _read_plan(known: Snapshot, desired: Mapping[str, NodeDesired]) -> tuple[Problem, Plan]:
    """Returns the problem of a moment, and what nodes are to run as a plan for it."""
    problem = formulate(known).problem
    return problem, formulate(replace(known, in_force=desired)).plan_in_force
