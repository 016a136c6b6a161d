"""How the fleet is run: advisory, approve or auto."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.control.domain.snapshot import Snapshot
from app.manifests.fleet import PolicySpec

ROLLED_BACK_HOLDS = timedelta(minutes=30)


def mode_of(snapshot: Snapshot) -> str:
    """How the fleet is run: advisory, approve or auto."""
    policy: Any = snapshot.spec("Policy", "default") or {}
    mode = str(policy.get("mode", PolicySpec.model_fields["mode"].default))
    back = snapshot.rolled_back_at
    # Somebody has just undone a plan: the next one that looks like it waits for a person.
    return "approve" if mode == "auto" and back and snapshot.at < back + ROLLED_BACK_HOLDS else mode
