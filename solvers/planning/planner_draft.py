"""Defines the seam of planners other than the joint one: the call, and the draft that they return to the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from solvers.planning.plan import OtherPlan, Plan, Unplaced, Unserved
from solvers.planning.problem import Instance, Knowledge, PlacedJob, Problem


@dataclass(frozen=True, slots=True)
class PlannerBudget:
    """The work that a planner may do: the same answer on any machine."""

    work: int = 60
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PlannerDraft:
    """The instances of all services with their rates, the rates that none carries, and what to remember.

    A planner that also places jobs says which are left out; without `jobs` they are added as beside any plan.
    """

    instances: tuple[Instance, ...]
    unserved: tuple[Unserved, ...]
    method: str
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    jobs: tuple[PlacedJob, ...] | None = None
    unplaced: tuple[Unplaced, ...] = ()


class PlanDrafter(Protocol):
    """Plans the services of a problem, whose `state` has what runs now. The judge decides whether that may be."""

    def __call__(self, problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft: ...


@dataclass(frozen=True, slots=True)
class RivalPlan:
    """The judged plan of another planner for the same problem; without a plan it breaks a rule."""

    about: OtherPlan
    plan: Plan | None = None


class AskOthers(Protocol):
    """Asks other planners about a problem: the quick ones, or those that take longer; by the same work anywhere."""

    def __call__(self, problem: Problem, *, quick: bool) -> Sequence[RivalPlan]: ...
