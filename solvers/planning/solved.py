"""The limits of a search, and its findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from solvers.planning.duals import Duals
from solvers.planning.kept_search import KeptSearch
from solvers.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """The best plan and bound that a search knows at a moment."""

    seconds: float
    cost: float
    bound: float | None
    method: str
    serves_all: bool  # the plan leaves nothing unserved


Progress = Callable[[SearchStatus], None]


@dataclass(frozen=True, slots=True)
class SolveBudget:
    """Limits a search: by steps of work, which are the same on every machine, by seconds, and by patience."""

    seconds: float | None = 10.0
    work: int | None = None
    seed: int = 0
    patience_seconds: float = inf  # it ends this long after the last better plan; later where the first took long


TEN_SECONDS = SolveBudget()


@dataclass(frozen=True, slots=True)
class SolvedPlan:
    """A plan, and what finds it again on any machine: see `replay_plan`."""

    plan: Plan
    work: int  # steps to its draft
    is_exact: bool  # they are the exact planner's steps
    is_cut: bool  # the seconds ended the search
    duals: Duals | None = None  # the prices that prove a bound at other rates, too
    kept: KeptSearch | None = None  # of the search for the bound, for the next one


@dataclass(frozen=True, slots=True)
class FoundBound:
    """A bound of every valid plan, how it was found, and the prices that prove one at other rates."""

    bound: float | None = None
    proof: str = ""
    duals: Duals | None = None
    programme: float | None = None  # what the linear programme behind it costs
