"""The mode of the fleet: advisory, approve or auto."""

from __future__ import annotations

from datetime import timedelta

from app.control.domain.policy import planner_policy
from app.control.domain.snapshot import Snapshot

APPROVAL_AFTER_ROLLBACK = timedelta(minutes=30)


def mode_of(snapshot: Snapshot) -> str:
    """Returns the mode of the policy, or `approve` for a while after a rollback."""
    mode = planner_policy(snapshot.declared).mode
    back = snapshot.rolled_back_at
    # A person has just undone a plan, and the next plan may look like it: let a person approve that.
    return "approve" if mode == "auto" and back and snapshot.at < back + APPROVAL_AFTER_ROLLBACK else mode
