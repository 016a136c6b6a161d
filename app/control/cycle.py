"""One cycle, top to bottom: from what is known at one moment to a decision on record, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from app.control.decide.around import Answering, FoundAnswer, answer_around_rests, answer_elsewhere
from app.control.decide.batch_drafts import BatchContext
from app.control.decide.batches import add_due_batches
from app.control.decide.cheaper import come_closer
from app.control.decide.choosing import choose
from app.control.decide.decide import draft_changes, hold_back, rollout_in_progress, rollout_paused, split_by_mode
from app.control.decide.failures import explain_failure
from app.control.decide.fallback import draft_fallback
from app.control.decide.last_question import CycleResult, LastQuestion, plan_conditions, rests_to_keep
from app.control.decide.least_change import explain_skipped, follow_rates, with_bound_of_search
from app.control.decide.messages import events_of, explain_decisions, spell_held_back, true_reason
from app.control.decide.midway import Following, answer_midway
from app.control.decide.regret import RegretAccounts
from app.control.decide.shifting import shift
from app.control.decide.stopped import complete, lacks_nothing
from app.control.domain.decision import Decision, HeldBackChange, PlanState, SolveOutcome, SolverAnswer
from app.control.domain.events import Reason, event_of
from app.control.domain.policy import policy_spec
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.measure.tracing import note, phase
from app.control.record.planner_store import PlannerStore
from app.control.solve.orders import briefly, with_knowledge
from app.store.plans.plans import Overtaken
from solvers.planners.names import JOINT, MEASURING
from solvers.planning.kept_bound import KeptBound
from solvers.planning.measured import MeasuredInstance
from solvers.planning.problem import Knowledge, Problem


@dataclass(frozen=True, slots=True)
class CycleBudget:
    """The limits of an answer: seconds, which end the search, and steps of work, which are the same on any machine."""

    seconds: float = 10.0
    work: int | None = None
    seed: int = 0


def run_cycle(
    store: PlannerStore,
    solver: PlanSolver,
    snapshot: Snapshot,
    before: LastQuestion,
    budget: CycleBudget,
    reason: Reason,
    meanwhile: Callable[[Snapshot, Question], object],
    measured: Callable[[], Mapping[str, MeasuredInstance]] = dict,
) -> CycleResult:
    """From what is observed: formulate, solve, draft, hold back, record. The rollout then tells the nodes.

    `meanwhile` runs while the solver's process works and this one would wait; the answer must not depend on it.
    `measured` is asked for planners that try batches alone: to others a new minute would be a new question.
    """
    if policy_spec(snapshot.declared).get("planner", JOINT) in MEASURING:
        snapshot = replace(snapshot, measured=measured())
    with phase("pose"):
        around, question = close_failed_places(snapshot), formulate(snapshot)
        asked = question if around is snapshot else formulate(around)
        kept = before.regrets, before.knowledge
        cycle = _Cycle(store, solver, before, budget, true_reason(reason, snapshot), snapshot, question, asked, *kept)
    if waiting := cycle.why_not_ask():
        return cycle.skip(waiting)
    if added := cycle.fall_back_again(before.recent_failure(snapshot.at, question)):
        return added
    answering = cycle.answering(meanwhile)
    found = answer_around_rests(snapshot, question, around, asked, answering)
    found = answer_elsewhere(snapshot, question, found, answering)
    if cycle.is_joint:
        found = answer_midway(snapshot, question, found, cycle.following(found))
    decision, wanted = found.decision, found.wanted
    if decision is None or wanted is None:
        return cycle.fall_back(found.answer)
    cycle = replace(cycle, knowledge=found.answer.knowledge)
    if cycle.is_joint:
        with phase("batches"):
            cycle, decision = cycle.come_closer(decision, wanted)
        decision = explain_skipped(decision, wanted.plan)
    if decision.desired == snapshot.in_force:
        return replace(cycle.keep(decision, wanted), kept_bound=found.kept_bound)
    with phase("record"):
        return replace(cycle.record(decision), kept_bound=found.kept_bound)


@dataclass(frozen=True, slots=True)
class _Cycle:
    """The steps of one cycle, and what all of them read."""

    store: PlannerStore
    solver: PlanSolver
    before: LastQuestion
    budget: CycleBudget
    reason: Reason
    snapshot: Snapshot
    question: Question
    asked: Question  # that the solver gets: without the GPUs where steps failed a short while ago
    regrets: RegretAccounts
    knowledge: Knowledge  # of a planner other than the joint one

    @property
    def is_joint(self) -> bool:
        """Returns whether the joint planner plans: least changes, waiting and batches are parts of it alone."""
        return self.question.problem.policy.planner == JOINT

    def answering(self, meanwhile: Callable[[Snapshot, Question], object]) -> Answering:
        """Returns the solver of questions about this snapshot or a part of it."""
        return lambda snapshot, question: replace(self, snapshot=snapshot, question=question).answer(meanwhile)

    def following(self, found: FoundAnswer) -> Following:
        """Returns the drafter of the least change for a snapshot."""
        large, kept = found.answer, found.kept_bound
        return lambda snapshot, question: replace(self, snapshot=snapshot, question=question).follow(large, kept, False)

    def answer(self, meanwhile: Callable[[Snapshot, Question], object]) -> FoundAnswer:
        """Solves, drafts and holds back."""
        with phase("solve"):
            answer = self.solve(meanwhile)
        if answer.plan is None:
            return FoundAnswer(answer)
        with phase("judge"):
            wanted = self.draft(answer)
        if wanted.answer.outcome is SolveOutcome.WRONG:
            return FoundAnswer(wanted.answer)
        kept = KeptBound(self.question.problem, answer.duals, self.snapshot.at) if answer.duals else None
        with phase("hold_back"):
            if self.is_joint:
                follow = partial(self.follow, answer, kept)
                decision = choose(self.snapshot, self.question, wanted, follow, self.cheapen, self.shift)
            else:
                decision = hold_back(self.snapshot, self.question, wanted)
        return FoundAnswer(answer, wanted, decision, kept)

    def why_not_ask(self) -> HeldBackChange | None:
        """Returns why the solver is not asked now; None if it is."""
        snapshot, question, since = self.snapshot, self.question, self.before.rolls_since(self.snapshot)
        if rollout := rollout_paused(snapshot, question) or rollout_in_progress(snapshot, question, since):
            return rollout
        is_better_possible = self.before.is_worth_another_seed(self.snapshot.at)
        if self._is_proposed_already() or (
            self.before.still_answers(self.snapshot, self.asked) and not is_better_possible
        ):
            return HeldBackChange("", Reason.UNCHANGED, "all that the plan depends on is as before")
        return None

    def _is_proposed_already(self) -> bool:
        """Returns whether a plan that waits for approval answers the question as it was before rests ended."""
        then = self.before.as_proposed(self.snapshot)
        if then is self.snapshot or not self.snapshot.proposal:
            return False
        return self.before.still_answers(then, formulate(close_failed_places(then)))

    def skip(self, why: HeldBackChange) -> CycleResult:
        self.store.note(SolveOutcome.UNCHANGED, why.reason, why.message, None)
        is_same = why.reason == Reason.UNCHANGED
        regrets = self.regrets.waited(self.snapshot.at) if is_same else self.regrets.goal_waited(self.snapshot.at)
        last = replace(self.before, regrets=regrets, rolling_since=self.before.rolls_since(self.snapshot))
        return CycleResult(SolveOutcome.UNCHANGED, last, snapshot=self.snapshot, question=self.question)

    def solve(self, meanwhile: Callable[[Snapshot, Question], object]) -> SolverAnswer:
        answer = self.solver.solve(
            self._problem(),
            seconds=self.budget.seconds,
            work=self.budget.work,
            seed=self.budget.seed + self.before.count_other_seeds(self.snapshot, self.asked),
            meanwhile=lambda: (self.question.verdict, meanwhile(self.snapshot, self.question)),
        )
        note(outcome=answer.outcome)
        return answer

    def _problem(self) -> Problem:
        """Returns the problem; in a brief search with a short horizon, so that only needed changes pay."""
        problem = self.question.problem if self.is_joint else with_knowledge(self.question.problem, self.knowledge)
        return briefly(problem) if self._is_brief else problem

    @property
    def _is_brief(self) -> bool:
        """Returns whether only needed changes are searched: in a rollout whose plan lacks capacity, if no goal is due.

        Otherwise each rise of a load would start another whole plan before the last one has released what it replaces.
        """
        is_due = self.regrets.goal.waited(self.snapshot.at).is_due
        return self.snapshot.is_rolling and self.question.falls_short and not is_due

    def draft(self, answer: SolverAnswer) -> Decision:
        return draft_changes(self.snapshot, self.question, answer, reason=self.reason)

    def follow(self, large: SolverAnswer, kept: KeptBound | None, only_if_moved: bool) -> Decision | None:
        """Drafts the least change, by which the plan in force follows the rates that moved; None if there is none.

        Its bound is that of the search for the large plan, as far as that proves one for this question.
        """
        problem, plan, rates = follow_rates(self.question)
        if only_if_moved and not rates:
            return None
        answer = self.solver.follow(problem, plan, rates, seconds=self.budget.seconds)
        if answer.plan is None:
            return None
        plan = with_bound_of_search(answer.plan, large, kept, self.question.problem, self.snapshot.at)
        answer = replace(answer, plan=plan)
        decision = self.draft(answer)
        return None if decision.answer.outcome is SolveOutcome.WRONG else decision

    def cheapen(self, decision: Decision) -> Decision:
        """Returns the decision with the batches of moves that are due at once."""
        context = BatchContext(self.snapshot, self.question, decision, self.budget.seconds)
        return add_due_batches(context, self.regrets, self.solver)[0]

    def shift(self, decision: Decision) -> Decision | None:
        """Drafts a decision again so that it has an order of steps; None if that is not possible."""
        return shift(self.snapshot, self.question, decision, self.solver, seconds=self.budget.seconds)

    def come_closer(self, decision: Decision, wanted: Decision) -> tuple[_Cycle, Decision]:
        """Waits until a cheaper plan is due, or adds what comes closer to it."""
        context = BatchContext(self.snapshot, self.question, decision, self.budget.seconds)
        found, regrets = come_closer(context, wanted, self.regrets, self.solver, is_brief=self._is_brief)
        return replace(self, regrets=regrets), found

    def keep(self, decision: Decision, wanted: Decision) -> CycleResult:
        """Notes that the plan in force stays, and what was held back."""
        held = decision.held_back
        reason = held[0].reason if held else Reason.UNCHANGED
        self.store.note(SolveOutcome.UNCHANGED, reason, spell_held_back(held), self.snapshot if held else None)
        is_whole = self.asked is self.question  # else more may be wanted than was asked for
        if self.snapshot.is_stopped and is_whole and lacks_nothing(self.snapshot, self.question, decision, wanted):
            complete(self.store, self.snapshot)
        return self._unchanged(decision)

    def record(self, decision: Decision) -> CycleResult:
        """Records the decision, split by mode; nothing if another one was recorded meanwhile."""
        parts = explain_decisions(self.question, split_by_mode(self.snapshot, decision))
        try:
            generations = self.store.record(self.snapshot, parts, events_of(decision, parts))
        except Overtaken as newer:
            # The question is forgotten, so that it is asked again from the new plan.
            return CycleResult(
                SolveOutcome.UNCHANGED, self.before, 0, None, self.snapshot, self.question, str(newer), overtaken=True
            )
        if not generations:
            return self._unchanged(decision)
        last = self._last_question(decision.answer.outcome, self.snapshot.declared)
        states = {part.state for part in parts}
        rests = rests_to_keep(self.snapshot, decision, PlanState.PROPOSED in states)
        last = replace(last, rests=rests, is_shown=bool(states & {PlanState.PROPOSED, PlanState.ADVISORY}))
        return CycleResult(decision.answer.outcome, last, generations[0], parts[0], self.snapshot, self.question)

    def fall_back(self, answer: SolverAnswer) -> CycleResult:
        """Notes that no plan came, and adds what the plan in force leaves unserved by the second method."""
        failed = self.fail(answer)
        found = self._fallback(answer.outcome)
        if found is None:
            return failed
        made = self.record(found)
        return replace(failed, generation=made.generation, decision=made.decision, overtaken=made.overtaken)

    def fall_back_again(self, failure: SolveOutcome | None) -> CycleResult | None:
        """Adds what is missing by now without waiting for a solver that has just failed: it is asked again soon."""
        found = self._fallback(failure) if failure else None
        return replace(self.record(found), last_question=self.before) if found else None

    def _fallback(self, outcome: SolveOutcome) -> Decision | None:
        with phase("fall_back"):
            return draft_fallback(self.snapshot, outcome, self.solver, self.reason)

    def fail(self, answer: SolverAnswer) -> CycleResult:
        """Notes that no plan came, so that the last good one stays in force."""
        reason, message, found = explain_failure(answer, self.before.answered, self.snapshot.declared)
        self.store.note(answer.outcome, reason, message, self.snapshot, [event_of(reason, message)])
        last = self._last_question(answer.outcome, self.before.answered)
        return CycleResult(
            answer.outcome, last, 0, None, self.snapshot, self.question, message, why=reason, suspects=found
        )

    def _unchanged(self, decision: Decision) -> CycleResult:
        last = self._last_question(SolveOutcome.SOLVED, self.snapshot.declared)
        return CycleResult(SolveOutcome.UNCHANGED, last, 0, decision, self.snapshot, self.question)

    def _last_question(self, outcome: SolveOutcome, answered: tuple[DeclaredObject, ...]) -> LastQuestion:
        return LastQuestion(
            self.asked.fingerprint, outcome, self.snapshot.at, plan_conditions(self.snapshot), answered, self.regrets,
            knowledge=self.knowledge, other_seeds=self.before.count_other_seeds(self.snapshot, self.asked),
            rolling_since=self.before.rolls_since(self.snapshot),
        )  # fmt: skip
