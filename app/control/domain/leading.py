"""What a leader holds and how it loses it: the view of a cycle, and the refusal of an epoch that is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.control.domain.decision import PlanState
from app.control.domain.desired import Desired, FleetStatus
from app.control.domain.snapshot import DeclaredObject
from app.store.plans import plans


@dataclass(frozen=True, slots=True)
class FleetView:
    """What a rollout goes by: the plan in force, what nodes were told, and what they say."""

    at: datetime
    declared: tuple[DeclaredObject, ...]
    plan: plans.PlanInForce | None
    target: Desired  # what the plan wants
    assigned: Desired
    status: FleetStatus


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """How far a rollout is."""

    state: PlanState
    rollout: Mapping[str, Any]
    message: str | None = None
    desired: Desired | None = None  # in place of what the plan wanted, where it ends somewhere else


class Deposed(Exception):
    """A newer epoch won: whatever this leader writes is nothing."""
