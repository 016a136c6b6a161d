"""One cycle, top to bottom: from what is known at one moment to a decision on record, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.control.decide.around import FoundAnswer
from app.control.decide.decide import split_by_mode
from app.control.decide.deciding import Asking, Moment, decide, fall_back, pose_moment
from app.control.decide.deciding import CycleBudget as CycleBudget
from app.control.decide.failures import explain_failure
from app.control.decide.last_question import CycleResult, LastQuestion, plan_conditions, rests_to_keep, why_not_ask
from app.control.decide.messages import explain_decisions, list_events, spell_held_back, true_reason
from app.control.decide.stopped import complete, lacks_nothing
from app.control.domain.decision import HeldBackChange, PlanState, SolveOutcome
from app.control.domain.events import Reason, event_of
from app.control.domain.policy import policy_spec
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.measure.tracing import phase
from app.control.record.planner_store import PlannerStore
from app.control.solve.recorded import RecordingSolver
from app.store.plans.plans import Overtaken
from solvers.planners.names import JOINT, MEASURING
from solvers.planning.measured import MeasuredInstance


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
    """From what is observed: formulate, decide, record. The rollout then tells the nodes.

    `meanwhile` runs while the solver's process works and this one would wait; the answer must not depend on it.
    `measured` is asked for planners that try batches alone: to others a new minute would be a new question.
    """
    if policy_spec(snapshot.declared).get("planner", JOINT) in MEASURING:
        snapshot = replace(snapshot, measured=measured())
    with phase("pose"):
        moment = pose_moment(replace(snapshot, regrets=before.regrets))
    cycle = _Cycle(store, moment, before)
    if waiting := why_not_ask(before, moment):
        return cycle.skip(waiting)
    seeded = replace(budget, seed=budget.seed + before.count_other_seeds(snapshot, moment.asked))
    recording = RecordingSolver(solver)
    asking = Asking(recording, seeded, true_reason(reason, snapshot, before.answered), before.knowledge, meanwhile)
    # What is missing by now does not wait for a solver that has just failed: it is asked again soon.
    if added := fall_back(moment, before.recent_failure(snapshot.at, moment.question), asking):
        found = FoundAnswer(added.answer, moment.around, decision=added)
        return replace(cycle.record(found, recording, before), last_question=before)
    found = decide(moment, asking)
    if found.wanted is None:
        return cycle.fail(found, recording)
    if found.decision is None or found.decision.desired == snapshot.in_force:
        return cycle.keep(found)
    with phase("record"):
        return cycle.record(found, recording, cycle.ask_next(found.decision.answer.outcome, found))


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Notes and records what comes of one moment."""

    store: PlannerStore
    moment: Moment
    before: LastQuestion

    @property
    def snapshot(self) -> Snapshot:
        return self.moment.snapshot

    def skip(self, why: HeldBackChange) -> CycleResult:
        """Notes that the solver is not asked."""
        self.store.note(SolveOutcome.UNCHANGED, why.reason, why.message, None)
        regrets, now = self.before.regrets, self.snapshot.at
        regrets = regrets.waited(now) if why.reason == Reason.UNCHANGED else regrets
        last = replace(self.before, regrets=regrets, rolling_since=self.before.rolls_since(self.snapshot))
        return self._result(SolveOutcome.UNCHANGED, last)

    def keep(self, found: FoundAnswer) -> CycleResult:
        """Notes that the plan in force stays, and what was held back."""
        snapshot, held = self.snapshot, found.decision.held_back if found.decision else ()
        reason = held[0].reason if held else Reason.UNCHANGED
        self.store.note(SolveOutcome.UNCHANGED, reason, spell_held_back(held), snapshot if held else None)
        is_whole = self.moment.asked is self.moment.question  # else more may be wanted than was asked for
        if snapshot.is_stopped and is_whole and lacks_nothing(snapshot, self.moment.question, found):
            complete(self.store, snapshot)
        return self._change_nothing(found)

    def record(self, found: FoundAnswer, recording: RecordingSolver, last: LastQuestion) -> CycleResult:
        """Records the decision, split by mode; nothing if another one was recorded meanwhile."""
        assert found.decision is not None
        decision, snapshot = replace(found.decision, drafts=tuple(recording.drafts)), self.snapshot
        answered = self.before.answered
        act = self.store.describe_last_act() if decision.reason == Reason.OPERATOR else ""
        parts = explain_decisions(snapshot, self.moment.question, split_by_mode(snapshot, decision), answered, act)
        try:
            generations = self.store.record(snapshot, parts, list_events(decision, parts))
        except Overtaken as newer:
            # The question is forgotten, so that it is asked again from the new plan.
            result = self._result(SolveOutcome.UNCHANGED, self.before, found)
            return replace(result, decision=None, message=str(newer), overtaken=True)
        if not generations:
            return self._change_nothing(found)
        states = {part.state for part in parts}
        rests = rests_to_keep(snapshot, decision, PlanState.PROPOSED in states)
        last = replace(last, rests=rests, is_shown=bool(states & {PlanState.PROPOSED, PlanState.ADVISORY}))
        return replace(self._result(decision.answer.outcome, last, found), generation=generations[0], decision=parts[0])

    def fail(self, found: FoundAnswer, recording: RecordingSolver) -> CycleResult:
        """Notes that no plan came, so that the last good one stays in force, and records what is added to it."""
        answer, answered = found.answer, self.before.answered
        reason, message, suspects = explain_failure(answer, answered, self.snapshot.declared)
        self.store.note(answer.outcome, reason, message, self.snapshot, [event_of(reason, message)])
        last = replace(self.ask_next(answer.outcome), answered=answered)
        failed = replace(
            self._result(answer.outcome, last, found), decision=None, message=message, why=reason, suspects=suspects
        )
        if found.decision is None:
            return failed
        made = self.record(found, recording, last)
        return replace(failed, generation=made.generation, decision=made.decision, overtaken=made.overtaken)

    def ask_next(self, outcome: SolveOutcome, found: FoundAnswer | None = None) -> LastQuestion:
        """Returns the question of this cycle as the next one remembers it."""
        return LastQuestion(
            self.moment.asked.fingerprint, outcome, self.snapshot.at, plan_conditions(self.snapshot),
            self.snapshot.declared, found.regrets if found else self.before.regrets,
            knowledge=found.answer.knowledge if found else self.before.knowledge,
            other_seeds=self.before.count_other_seeds(self.snapshot, self.moment.asked),
            rolling_since=self.before.rolls_since(self.snapshot),
        )  # fmt: skip

    def _change_nothing(self, found: FoundAnswer) -> CycleResult:
        return self._result(SolveOutcome.UNCHANGED, self.ask_next(SolveOutcome.SOLVED, found), found)

    def _result(self, outcome: SolveOutcome, last: LastQuestion, found: FoundAnswer | None = None) -> CycleResult:
        result = CycleResult(outcome, last, snapshot=self.snapshot, question=self.moment.question)
        return replace(
            result, decision=found.decision, searched=found.searched, kept_bound=found.kept_bound
        ) if found else result  # fmt: skip
