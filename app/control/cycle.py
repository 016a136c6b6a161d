"""One cycle, top to bottom: from what is known at one moment to a decision on record, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.control.decide.decide import draft_changes, hold_back, rollout_in_progress, split_by_mode
from app.control.decide.last_question import CycleResult, LastQuestion, plan_conditions
from app.control.decide.least_change import explain_skipped, follow_rates, is_preferred, is_too_large
from app.control.domain.blame import describe_suspects, suspects
from app.control.domain.decision import Decision, HeldBackChange, PlanState, SolveOutcome, SolverAnswer
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.measure.tracing import note, phase
from app.control.observe.observer import ExpectLoads
from app.control.record.planner_store import PlannerStore
from app.store.plans.plans import Overtaken
from solvers.planning.plan import Plan

FAULTS = (SolveOutcome.CRASHED, SolveOutcome.WRONG)  # of the solver: more time would not help


@dataclass(frozen=True, slots=True)
class CycleBudget:
    """What an answer may cost: seconds, which cut it short, and steps of work, which are the same everywhere."""

    seconds: float = 10.0
    work: int | None = None
    seed: int = 0


def run_cycle(
    store: PlannerStore,
    solver: PlanSolver,
    expecting: ExpectLoads,
    before: LastQuestion,
    budget: CycleBudget,
    reason: Reason = Reason.CYCLE,
    meanwhile: Callable[[Snapshot, Question], object] = lambda snapshot, posed: None,
) -> CycleResult:
    """Observe, pose, solve, judge, hold back, record. What nodes are told then is the rollout's business.

    `meanwhile` is done while the solver's process works and this one would wait; the answer must not depend on it.
    """
    with phase("observe"):
        snapshot = store.snapshot(expecting)
    with phase("pose"):
        posed = formulate(snapshot)
    if waiting := rollout_in_progress(snapshot, posed):
        store.note(SolveOutcome.UNCHANGED, waiting.reason, waiting.message, None)
        return CycleResult(SolveOutcome.UNCHANGED, before, snapshot=snapshot, posed=posed)
    if before.stands(snapshot, posed):
        store.note(SolveOutcome.UNCHANGED, Reason.UNCHANGED, "the same question as before: its answer stands", None)
        return CycleResult(SolveOutcome.UNCHANGED, before, snapshot=snapshot, posed=posed)
    with phase("solve"):
        answer = solver.solve(
            posed.problem,
            seconds=budget.seconds,
            work=budget.work,
            seed=budget.seed,
            meanwhile=lambda: (posed.verdict, meanwhile(snapshot, posed)),
        )
    note(outcome=answer.outcome)
    asked = LastQuestion(posed.question, answer.outcome, snapshot.at, plan_conditions(snapshot), before.answered)
    if answer.plan is None:
        return _nothing(store, snapshot, posed, answer, asked)
    large = answer.plan
    if is_too_large(snapshot, large.changes):
        with phase("solve"):
            answer = _smaller(solver, posed, large, budget) or answer
    with phase("judge"):
        decision = draft_changes(snapshot, posed, answer, reason=reason)
    if decision.answer.outcome is SolveOutcome.WRONG:
        return _nothing(store, snapshot, posed, decision.answer, replace(asked, outcome=SolveOutcome.WRONG))
    asked = replace(asked, answered=snapshot.declared)
    with phase("hold_back"):
        decision = hold_back(snapshot, posed, decision)
        if decision.desired == snapshot.standing and answer.plan is large and posed.falls_short:
            # Nothing of it can be done, and somebody waits or is late: at least what fits beside what stands.
            small = _smaller(solver, posed, None, budget)
            if small is not None:
                least = draft_changes(snapshot, posed, small, reason=reason)
                if least.answer.outcome is not SolveOutcome.WRONG:
                    decision = hold_back(snapshot, posed, least)
        if decision.answer.recipe.get("kind") == "follow":
            decision = explain_skipped(decision, large)
    if decision.desired == snapshot.standing:
        held = decision.held_back
        store.note(
            SolveOutcome.UNCHANGED,
            held[0].reason if held else Reason.UNCHANGED,
            _said(held),
            snapshot if held else None,
        )
        return CycleResult(SolveOutcome.UNCHANGED, asked, 0, decision, snapshot, posed)
    with phase("record"):
        try:
            found = split_by_mode(snapshot, decision)
            generations = store.record(snapshot, found, _happened(decision, found))
        except Overtaken as overtaken:
            # Its question is forgotten: it is asked again of what stands now.
            return CycleResult(SolveOutcome.UNCHANGED, before, 0, None, snapshot, posed, str(overtaken), overtaken=True)
    if not generations:
        return CycleResult(SolveOutcome.UNCHANGED, asked, 0, decision, snapshot, posed)
    return CycleResult(answer.outcome, asked, generations[0], found[0], snapshot, posed)


def _smaller(solver: PlanSolver, posed: Question, large: Plan | None, budget: CycleBudget) -> SolverAnswer | None:
    """The least change, where it serves as much or the large plan is too large to be ordered; None otherwise."""
    problem, plan, rates = follow_rates(posed)
    if large is not None and not rates:
        return None  # nothing has moved that it could follow
    answer = solver.follow(problem, plan, rates, seconds=budget.seconds)
    if answer.plan is None or (large is not None and not is_preferred(answer.plan, large)):
        return None
    return answer


def _nothing(
    store: PlannerStore, snapshot: Snapshot, posed: Question, answer: SolverAnswer, asked: LastQuestion
) -> CycleResult:
    """No plan came: the last good one stands, and that is said."""
    reason = {
        SolveOutcome.OUT_OF_TIME: Reason.SOLVER_OUT_OF_TIME,
        SolveOutcome.CRASHED: Reason.SOLVER_CRASHED,
        SolveOutcome.WRONG: Reason.SOLVER_WRONG,
    }.get(answer.outcome, Reason.NOTHING_TO_PLAN)
    found = suspects(asked.answered, snapshot.declared) if answer.outcome in FAULTS else ()
    message = "; ".join(filter(None, (answer.message or reason.sentence, describe_suspects(found))))
    store.note(answer.outcome, reason, message, snapshot, [event_of(reason, message)])
    return CycleResult(answer.outcome, asked, 0, None, snapshot, posed, message, suspects=found)


def _said(held: tuple[HeldBackChange, ...]) -> str:
    return "; ".join(f"{one.service}: {one.message}" if one.service else one.message for one in held[:5])


def _happened(decision: Decision, found: Sequence[Decision]) -> list[NewEvent]:
    changes = decision.plan.changes
    told = ", ".join(
        f"{count} {name}" for name in ("start", "stop", "move", "resize", "retune") if (count := getattr(changes, name))
    )
    planned = event_of(Reason.PLANNED, told or "nothing changes but weights", kind="Plan")
    if any(one.state is PlanState.PROPOSED for one in found):
        return [planned, event_of(Reason.PLAN_PROPOSED, kind="Plan")]
    return [planned]
