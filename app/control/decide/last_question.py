"""The result of a cycle: the question it asked, and the decision it recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.control.decide.decide import rollout_in_progress, rollout_paused
from app.control.decide.deciding import Moment, pose_moment
from app.control.domain.blame import describe_suspects, suspects_of_tenant
from app.control.domain.decision import Decision, HeldBackChange, SolveOutcome
from app.control.domain.events import Reason
from app.control.domain.mode import read_modes
from app.control.domain.regret import NO_REGRETS, RegretAccounts
from app.control.domain.snapshot import DeclaredObject, Rest, Snapshot
from app.control.formulate.question import Question
from solvers.planners.names import JOINT
from solvers.planning.kept_bound import KeptBound
from solvers.planning.problem import Knowledge

AGAIN_AFTER = timedelta(seconds=60)  # a question that the solver failed on is asked again, not every cycle
JOBS_AGAIN_AFTER = timedelta(minutes=5)  # deadlines come nearer although nothing else changes
OTHER_SEED_AFTER = timedelta(minutes=5)  # each time after twice as long
REFUSED_AGAIN_AFTER = timedelta(seconds=30)  # where what was due has no order of steps: another plan may have one
MOST_DOUBLINGS = 6
FAILED = (SolveOutcome.CRASHED, SolveOutcome.OUT_OF_TIME, SolveOutcome.WRONG)
UNANSWERED = (*FAILED, SolveOutcome.COMPILING)


@dataclass(frozen=True, slots=True)
class LastQuestion:
    """The last question and its outcome: asked again with the same seed, it has the same answer."""

    fingerprint: bytes = b""
    outcome: SolveOutcome = SolveOutcome.UNCHANGED
    at: datetime | None = None
    conditions: tuple[str, ...] = ()  # as `plan_conditions` gives them
    answered: tuple[DeclaredObject, ...] = ()  # the world of the last answer
    regrets: RegretAccounts = NO_REGRETS
    rests: Mapping[str, Rest] = field(default_factory=dict)  # around which a plan was proposed
    is_shown: bool = False  # its answer, or a part of it, was recorded for people to read
    knowledge: Knowledge = field(default_factory=dict)  # what a planner other than the joint one remembers
    other_seeds: int = 0  # that the question has been asked with since it was new
    rolling_since: datetime | None = None  # rollouts have followed each other since then, as far as cycles saw

    def still_answers(self, snapshot: Snapshot, question: Question) -> bool:
        """Returns whether asking again with the same seed would give the same answer."""
        now = snapshot.at
        if self.at is None or not self._is_about(snapshot, question):
            return False
        if self.outcome is SolveOutcome.COMPILING:
            return False
        if self.outcome in FAILED:
            return now < self.at + AGAIN_AFTER
        if self._has_due(now):
            return False
        if question.problem.policy.planner != JOINT and not self.is_shown:
            return False  # some of them act once a load has lasted
        return now < self.at + JOBS_AGAIN_AFTER or not question.problem.jobs

    def recent_failure(self, now: datetime, question: Question) -> SolveOutcome | None:
        """Returns how the solver has just failed, if load is unserved by now that must not wait for it again."""
        if self.at is None or self.outcome not in FAILED or not question.falls_short:
            return None
        return self.outcome if now < self.at + AGAIN_AFTER else None

    def is_worth_another_seed(self, now: datetime) -> bool:
        """Returns whether to search for a better answer to the same question.

        People who read an answer, or have rejected it, do not get another one every few minutes.
        """
        if self.at is None or self.is_shown or self.outcome in UNANSWERED:
            return False
        pause = REFUSED_AGAIN_AFTER if self.regrets.is_refused else OTHER_SEED_AFTER
        return now >= self.at + pause * (1 << min(self.other_seeds, MOST_DOUBLINGS))

    def count_other_seeds(self, snapshot: Snapshot, question: Question) -> int:
        """Returns how many other seeds the question will have been asked with, if it is asked now."""
        if not self._is_about(snapshot, question):
            return 0
        keeps_seed = self.is_shown or self.outcome in UNANSWERED or self._has_due(snapshot.at)
        return self.other_seeds if keeps_seed else self.other_seeds + 1

    def rolls_since(self, snapshot: Snapshot) -> datetime | None:
        """Returns since when rollouts have followed each other; None while nothing is rolled out."""
        return (self.rolling_since or snapshot.at) if snapshot.is_rolling else None

    def _is_about(self, snapshot: Snapshot, question: Question) -> bool:
        return (self.fingerprint, self.conditions) == (question.fingerprint, plan_conditions(snapshot))

    def _has_due(self, now: datetime) -> bool:
        return bool(self.regrets.due(now))

    def keep_proposed_rests(self, snapshot: Snapshot) -> Snapshot:
        """Returns the snapshot with the rests that a proposal was made around.

        A person may be reading it, and it starts copies where none failed: the end of a rest asks for no other plan.
        """
        return replace(snapshot, resting={**self.rests, **snapshot.resting}) if self.rests else snapshot


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The result of a cycle. `generation` is that of the plan it recorded, 0 if it recorded none."""

    outcome: SolveOutcome
    last_question: LastQuestion
    generation: int = 0
    decision: Decision | None = None
    snapshot: Snapshot | None = None
    question: Question | None = None
    searched: Snapshot | None = None  # the fleet as it was asked about: perhaps with closed GPUs
    message: str = ""
    overtaken: bool = False  # by another decision, while this one was made
    why: Reason | None = None  # where no plan came
    suspects: tuple[DeclaredObject, ...] = ()  # where the solver failed: what may be the cause
    kept_bound: KeptBound | None = None  # of this cycle's search, if it found one

    @property
    def blamed(self) -> dict[str, str]:
        """Returns the services that may be why the solver failed, each with a message for its tenant.

        The solver's own message may name anything of any tenant: only operators read it, in events and cycles.
        """
        return {item.full_name: self._message_for(item.tenant) for item in self.suspects if item.kind == "Service"}

    def _message_for(self, tenant: str) -> str:
        sentence = self.why.sentence.rstrip(".") if self.why else ""
        return f"{sentence}; {describe_suspects(suspects_of_tenant(self.suspects, tenant))}"


def why_not_ask(before: LastQuestion, moment: Moment) -> HeldBackChange | None:
    """Returns why the solver is not asked now; None if it is."""
    snapshot, since = moment.snapshot, before.rolls_since(moment.snapshot)
    if rollout := rollout_paused(snapshot, moment.question) or rollout_in_progress(snapshot, moment.question, since):
        return rollout
    is_answered = before.still_answers(snapshot, moment.asked) and not before.is_worth_another_seed(snapshot.at)
    if is_answered or _is_proposed_already(before, snapshot):
        return HeldBackChange("", Reason.UNCHANGED, "all that the plan depends on is as before")
    return None


def _is_proposed_already(before: LastQuestion, snapshot: Snapshot) -> bool:
    """Returns whether a plan that waits for approval answers the question as it was before rests ended."""
    then = before.keep_proposed_rests(snapshot)
    if then is snapshot or not snapshot.proposal:
        return False
    return before.still_answers(then, pose_moment(then).asked)


def rests_to_keep(snapshot: Snapshot, decision: Decision, is_proposed: bool) -> Mapping[str, Rest]:
    """Returns the rests that a proposal does not wait for."""
    waiting = {held.service for held in decision.held_back if held.reason == Reason.STEP_FAILED_LATELY}
    return {owner: rest for owner, rest in snapshot.resting.items() if is_proposed and owner not in waiting}


def plan_conditions(snapshot: Snapshot) -> tuple[str, ...]:
    """Returns what else an answer depends on: the modes, if a plan is being rolled out, and which services rest."""
    modes = (read_modes(snapshot.declared, snapshot.is_held).fleet, "held" if snapshot.is_held else "")
    return (*modes, "rolling" if snapshot.is_rolling else "", *sorted(snapshot.resting))
