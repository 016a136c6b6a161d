"""Decides: asks the solver, drafts what its answers change, and chooses. A replay decides by the same function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from app.control.decide.around import FoundAnswer, answer_around_rests, answer_elsewhere, prefer_around
from app.control.decide.batch_drafts import BatchContext
from app.control.decide.batches import add_due_batches
from app.control.decide.choosing import choose
from app.control.decide.cost_alone import wait_with_whole_plan
from app.control.decide.decide import draft_changes, hold_back
from app.control.decide.fallback import draft_fallback
from app.control.decide.least_change import explain_skipped, follow_rates, take_bound_of_search
from app.control.decide.midway import answer_midway
from app.control.decide.shifting import shift
from app.control.domain.decision import Decision, SolveOutcome, SolverAnswer
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.formulate.reserved_watts import reserve_watts
from app.control.measure.tracing import note, phase
from app.control.solve.orders import briefly, set_knowledge
from solvers.planners.names import JOINT
from solvers.planning.kept_bound import KeptBound
from solvers.planning.problem import Knowledge, Problem


@dataclass(frozen=True, slots=True)
class CycleBudget:
    """The limits of an answer: seconds, which end the search, and steps of work, which are the same on any machine."""

    seconds: float = 10.0
    work: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """What a decision is made from: all that is known, and its question."""

    snapshot: Snapshot
    question: Question
    base: Snapshot  # with watts in reserve where nodes asked for other partitions
    base_question: Question
    around: Snapshot  # the same without the GPUs where steps failed a short while ago
    asked: Question  # about that

    @property
    def is_joint(self) -> bool:
        """Returns whether the joint planner plans: least changes, waiting and batches are parts of it alone."""
        return self.question.problem.policy.planner == JOINT


def pose_moment(snapshot: Snapshot) -> Moment:
    """Poses the question of a snapshot, and those to answer if they can be answered as well."""
    question, base = formulate(snapshot), reserve_watts(snapshot)
    base_question = question if base is snapshot else formulate(base)
    around = close_failed_places(base)
    asked = base_question if around is base else formulate(around)
    return Moment(snapshot, question, base, base_question, around, asked)


@dataclass(frozen=True, slots=True)
class Asking:
    """The solver that is asked, how, and why."""

    solver: PlanSolver
    budget: CycleBudget
    reason: str
    knowledge: Knowledge = field(default_factory=dict)  # of a planner other than the joint one
    meanwhile: Callable[[Snapshot, Question], object] = lambda snapshot, question: None


def decide(moment: Moment, asking: Asking) -> FoundAnswer:
    """Returns the decision with watts in reserve where nodes asked for it; without, if that leaves load unserved."""
    snapshot, question = moment.snapshot, moment.question
    if moment.base is snapshot:
        return _decide(moment, asking)
    found = _decide(replace(moment, snapshot=moment.base, question=moment.base_question), asking)

    def decide_without() -> FoundAnswer:
        around = close_failed_places(snapshot)
        asked = question if around is snapshot else formulate(around)
        return _decide(replace(moment, around=around, asked=asked), asking)

    return prefer_around(snapshot, question, moment.base, moment.base_question, found, decide_without)


def _decide(moment: Moment, asking: Asking) -> FoundAnswer:
    """Returns the decision, and the plan that it was chosen beside; without that where no solver gave a right plan.

    Then the decision adds what the plan in force leaves unserved by the second method, if it leaves anything.
    """
    snapshot, question, answering = moment.snapshot, moment.question, partial(_answer, asking)
    found = answer_around_rests(snapshot, question, moment.around, moment.asked, answering)
    found = answer_elsewhere(snapshot, question, found, answering)
    if moment.is_joint:
        following = partial(_follow, asking, found.answer, found.kept_bound, only_if_moved=False)
        found = answer_midway(snapshot, question, found, following)
    if found.decision is None or found.wanted is None:
        added = fall_back(moment, found.answer.outcome, asking)
        return FoundAnswer(found.answer, moment.around, decision=added, regrets=snapshot.regrets)
    if not moment.is_joint:
        return replace(found, regrets=snapshot.regrets)
    with phase("batches"):
        context = wait_with_whole_plan(snapshot, question, found.decision, found.wanted, asking.budget.seconds)
        decision, regrets = add_due_batches(context, snapshot.regrets, asking.solver)
    return replace(found, decision=explain_skipped(decision, found.wanted.plan), regrets=regrets)


def fall_back(moment: Moment, outcome: SolveOutcome | None, asking: Asking) -> Decision | None:
    """Adds what is missing by the second method, if the solver failed so."""
    if outcome is None:
        return None
    with phase("fall_back"):
        return draft_fallback(moment.snapshot, outcome, asking.solver, asking.reason)


def _answer(asking: Asking, snapshot: Snapshot, question: Question) -> FoundAnswer:
    """Solves, drafts and holds back."""
    with phase("solve"):
        answer = asking.solver.solve(
            _problem(asking, snapshot, question),
            seconds=asking.budget.seconds,
            work=asking.budget.work,
            seed=asking.budget.seed,
            meanwhile=lambda: (question.verdict, asking.meanwhile(snapshot, question)),
        )
        note(outcome=answer.outcome)
    if answer.plan is None:
        return FoundAnswer(answer, snapshot)
    with phase("judge"):
        wanted = draft_changes(snapshot, question, answer, reason=asking.reason)
    if wanted.answer.outcome is SolveOutcome.WRONG:
        return FoundAnswer(wanted.answer, snapshot)
    kept = KeptBound(question.problem, answer.duals, snapshot.at) if answer.duals else None
    with phase("hold_back"):
        if question.problem.policy.planner != JOINT:
            return FoundAnswer(answer, snapshot, wanted, hold_back(snapshot, question, wanted), kept)

        def follow(only_if_moved: bool) -> Decision | None:
            return _follow(asking, answer, kept, snapshot, question, only_if_moved=only_if_moved)

        def cheapen(decision: Decision) -> Decision:
            context = BatchContext(snapshot, question, decision, asking.budget.seconds)
            return add_due_batches(context, snapshot.regrets, asking.solver)[0]

        shifting = partial(shift, snapshot, question, solver=asking.solver, seconds=asking.budget.seconds)
        decision = choose(snapshot, question, wanted, follow, cheapen, shifting)
    return FoundAnswer(answer, snapshot, wanted, decision, kept)


def _problem(asking: Asking, snapshot: Snapshot, question: Question) -> Problem:
    """Returns the problem; in a brief search with a short horizon, so that only needed changes pay."""
    is_joint = question.problem.policy.planner == JOINT
    problem = question.problem if is_joint else set_knowledge(question.problem, asking.knowledge)
    return briefly(problem) if _is_brief(snapshot, question) else problem


def _is_brief(snapshot: Snapshot, question: Question) -> bool:
    """Returns whether only needed changes are searched: in a rollout whose plan lacks capacity.

    Otherwise each rise of a load would start another whole plan before the last one has released what it replaces.
    """
    return snapshot.is_rolling and question.falls_short


def _follow(
    asking: Asking, large: SolverAnswer, kept: KeptBound | None, snapshot: Snapshot, question: Question, *,
    only_if_moved: bool,
) -> Decision | None:  # fmt: skip
    """Drafts the least change, by which the plan in force follows the rates that moved; None if there is none.

    Its bound is that of the search for the large plan, as far as that proves one for this question.
    """
    problem, plan, rates = follow_rates(question)
    if only_if_moved and not rates and question.verdict.is_right:
        return None
    answer = asking.solver.follow(problem, plan, rates, seconds=asking.budget.seconds)
    if answer.plan is None:
        return None
    plan = take_bound_of_search(answer.plan, large, kept, question.problem, snapshot.at)
    answer = replace(answer, plan=plan, is_least_change=True)
    decision = draft_changes(snapshot, question, answer, reason=asking.reason)
    return None if decision.answer.outcome is SolveOutcome.WRONG else decision
