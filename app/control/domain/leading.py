"""The leader's view of a rollout, and the exception that ends an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.control.domain.decision import PlanState
from app.control.domain.desired import Desired, FleetStatus
from app.control.domain.snapshot import DeclaredObject
from app.manifests.model import Fields
from app.store.fleet.load_news import LoadNews
from app.store.plans import plans
from app.store.plans.job_states import JobRow


@dataclass(frozen=True, slots=True)
class FleetView:
    """The input of a rollout step: the plan in force, the nodes' assignments, and the reported status."""

    at: datetime
    declared: tuple[DeclaredObject, ...]
    plan: plans.PlanInForce | None
    target: Desired  # the plan's desired state
    assigned: Desired
    status: FleetStatus
    jobs: Sequence[JobRow] = ()  # the stored state of each
    epoch: int = 0  # of the lease at that moment
    news: LoadNews | None = None  # that was asked for
    is_held: bool = False  # since a rollback, until a person resumes the fleet


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The progress of a rollout."""

    state: PlanState
    rollout: Fields
    message: str | None = None
    desired: Desired | None = None  # the state that was reached, where it differs from the plan's


class Deposed(Exception):
    """Another planner leads under a newer epoch, so this one must not write any more."""
