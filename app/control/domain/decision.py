"""The planner's decisions before they are recorded: the types that lanes, rollout, store and API share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isclose
from typing import TYPE_CHECKING

from app.control.domain.causes import ChangeCauses
from app.control.domain.desired import Desired
from app.manifests.model import JSON, Fields
from solvers.planning.batches.batch import Batch
from solvers.planning.judge import Verdict
from solvers.planning.plan import Plan
from solvers.planning.problem import Knowledge

if TYPE_CHECKING:
    from solvers.planning.duals import Duals  # needs numpy, which readers of plans may lack

SAME_SHARE = 1e-9  # of a cost: what sums of floats may differ by


class PlanningLane(StrEnum):
    """The part of the planner that decides."""

    FULL = "full"  # the cycle
    FAST = "fast"  # between cycles, for one service's load
    ROLLBACK = "rollback"


class PlanState(StrEnum):
    """The states of a recorded plan."""

    ADVISORY = "advisory"  # shown, never acted upon
    PROPOSED = "proposed"  # waits for approval
    REJECTED = "rejected"
    EXPIRED = "expired"  # the fleet that it was made for has changed
    ROLLING = "rolling"
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"  # a step failed its check
    ABORTED = "aborted"
    SUPERSEDED = "superseded"


class SolveOutcome(StrEnum):
    """The result of asking the solver for a plan."""

    SOLVED = "solved"
    UNCHANGED = "unchanged"  # the same question as before, so its answer still holds
    OUT_OF_TIME = "out_of_time"
    CRASHED = "crashed"  # the process crashed
    WRONG = "wrong"  # the judge rejected the answer, or the solver contradicts itself
    COMPILING = "compiling"  # its loops, once on each machine: it was not asked


class SolverOrder(StrEnum):
    """What a solver is asked for."""

    SOLVE = "solve"  # a plan from the problem alone
    FOLLOW = "follow"  # the plan in force follows the rates that moved: the least change
    ADD = "add"  # what the plan in force leaves unserved is added by HetSev's greedy, as the solver gave no plan
    FIND_BATCHES = "find_batches"
    MAKE_BATCHES = "make_batches"


@dataclass(frozen=True, slots=True)
class Draft:
    """A solver's answer as a decision records it: with it the same order gets the same answer again, anywhere."""

    order: SolverOrder
    outcome: SolveOutcome
    counted: Fields = field(default_factory=dict)  # as JSON


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """The solver's answer. `counted` is the work and not the seconds that it took, so that it can be had again."""

    outcome: SolveOutcome
    plan: Plan | None = None
    message: str = ""
    counted: Mapping[str, JSON] = field(default_factory=dict)  # {"seed": 0, "work": 120, ...}
    seconds: float = 0.0
    duals: Duals | None = None  # of a search, for bounds at other rates
    knowledge: Knowledge = field(default_factory=dict)  # what a planner other than the joint one remembers
    batches: tuple[Batch, ...] = ()  # that make a plan cheaper, where these were asked for
    is_least_change: bool = False  # nothing moves but what the rates that changed need


@dataclass(frozen=True, slots=True)
class HeldBackChange:
    """A change that is not made, and the reason."""

    service: str  # tenant/name of a service or a job
    reason: str  # not_worth_its_churn, no_room_to_hand_over, advisory, frozen, ...
    message: str
    needs_sm_percent: float = 0.0
    needs_memory_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanValue:
    """The value of a plan: plans are compared by the load that they leave unserved, then by cost over the horizon."""

    per_horizon: float | None  # with the churn; None if the plan breaks a rule
    churn: float = 0.0
    unserved: float = 0.0  # at its price, an hour

    def is_better_than(self, other: PlanValue) -> bool:
        """Returns whether this plan serves more, or as much for less; a plan that breaks a rule is never better."""
        if self.per_horizon is None or other.per_horizon is None:
            return self.per_horizon is not None
        if not isclose(self.unserved, other.unserved, rel_tol=SAME_SHARE, abs_tol=SAME_SHARE):
            return self.unserved < other.unserved
        return self.per_horizon < other.per_horizon - SAME_SHARE * abs(other.per_horizon)


@dataclass(frozen=True, slots=True)
class Decision:
    """A judged plan, ready to be recorded, with the services that it changes and the changes that it holds back."""

    lane: PlanningLane
    plan: Plan
    desired: Desired
    answer: SolverAnswer
    reason: str = ""  # the trigger: cycle, service_applied, node_lost, load_rose, ...
    message: str = ""
    failure: SolveOutcome | None = None  # of the joint solver, so that the second method planned
    held_back: tuple[HeldBackChange, ...] = ()
    state: PlanState = PlanState.ROLLING
    base: int = 0  # generation of the plan that it changes
    services: tuple[str, ...] = ()  # whose instances it changes
    verdict: Verdict | None = None  # of the judge
    value: PlanValue | None = None  # once the plan has been weighed
    causes: ChangeCauses = field(default_factory=ChangeCauses)  # why the plan before had to change
    drafts: tuple[Draft, ...] = ()  # all that solvers answered until it was chosen
