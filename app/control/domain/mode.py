"""The mode of the fleet: advisory, approve or auto."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.control.domain.snapshot import Snapshot
from app.manifests.fleet import PolicySpec

APPROVAL_AFTER_ROLLBACK = timedelta(minutes=30)


def mode_of(snapshot: Snapshot) -> str:
    """Returns the mode of the policy, or `approve` for a while after a rollback."""
    policy: Any = snapshot.spec("Policy", "default") or {}
    mode = str(policy.get("mode", PolicySpec.model_fields["mode"].default))
    back = snapshot.rolled_back_at
    # A person has just undone a plan, and the next plan may look like it: let a person approve that.
    return "approve" if mode == "auto" and back and snapshot.at < back + APPROVAL_AFTER_ROLLBACK else mode
