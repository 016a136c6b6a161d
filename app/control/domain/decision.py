"""What a lane of the planner decides, before it is recorded: the words that lanes, rollout, store and API share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.control.domain.desired import Desired
from app.manifests.model import JSON
from solvers.planning.judge import Verdict
from solvers.planning.plan import Plan


class PlanningLane(StrEnum):
    """Who decides."""

    FULL = "full"  # the cycle
    FAST = "fast"  # between cycles, for one service's load
    OPERATOR = "operator"  # a drain, a what-if that was applied
    ROLLBACK = "rollback"


class PlanState(StrEnum):
    """A recorded plan's own life."""

    ADVISORY = "advisory"  # shown, and never acted upon
    PROPOSED = "proposed"  # waits for approval
    REJECTED = "rejected"
    EXPIRED = "expired"  # what it was made from no longer holds
    ROLLING = "rolling"
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"  # a step failed its check
    ABORTED = "aborted"
    SUPERSEDED = "superseded"


class SolveOutcome(StrEnum):
    """What came of asking for a plan."""

    SOLVED = "solved"
    UNCHANGED = "unchanged"  # the same question as before: the answer stands
    OUT_OF_TIME = "out_of_time"
    CRASHED = "crashed"  # the process died
    WRONG = "wrong"  # the judge refused the answer, or a solver contradicts itself
    NOTHING = "nothing"  # there is nothing to plan on, or for


class RecipeKind(StrEnum):
    """How an answer was found: its recipe's `kind`."""

    SOLVE = "solve"  # from the problem alone
    FOLLOW = "follow"  # the plan in force follows the rates that moved: the least change
    QUICKEN = "quicken"  # by the fast lane
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """What the solver's process gave. `recipe` makes the same again anywhere: counted work, no seconds."""

    outcome: SolveOutcome
    plan: Plan | None = None
    message: str = ""
    recipe: Mapping[str, JSON] = field(default_factory=dict)  # {"kind": "solve", "seed": 0, "work": 120}, ...
    seconds: float = 0.0

    @property
    def is_least_change(self) -> bool:
        """Tells if nothing moves but what the rates that changed need."""
        return self.recipe.get("kind") == RecipeKind.FOLLOW


@dataclass(frozen=True, slots=True)
class HeldBackChange:
    """A change that is not made, and why."""

    service: str  # tenant/name; a job's name where it is one
    reason: str  # not_worth_its_churn, no_room_to_hand_over, advisory, frozen, ...
    message: str
    needs_sm_percent: float = 0.0
    needs_memory_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan as it is to be recorded: on real GPU indexes, judged, with what it changes and what it holds back."""

    lane: PlanningLane
    plan: Plan
    desired: Desired
    answer: SolverAnswer
    reason: str = ""  # what called for it: cycle, service_applied, node_lost, load_rose, ...
    message: str = ""
    held_back: tuple[HeldBackChange, ...] = ()
    state: PlanState = PlanState.ROLLING
    base: int = 0  # the plan that it changes
    services: tuple[str, ...] = ()  # whose instances it changes
    verdict: Verdict | None = None  # the judge's on the answer
