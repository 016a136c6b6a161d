"""The mode of the fleet and of its services: advisory, approve or auto."""

from __future__ import annotations

from collections.abc import Mapping

from app.control.domain.policy import planner_policy
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import own_mode
from app.manifests.model import JSON


def mode_of(snapshot: Snapshot) -> str:
    """Returns the mode of the policy; `approve` and not `auto` from a rollback until a person resumes the fleet."""
    return _held(snapshot, planner_policy(snapshot.declared).mode)


def service_mode(snapshot: Snapshot, spec: Mapping[str, JSON]) -> str | None:
    """Returns the mode that the service has of its own, held like the policy's; None without one."""
    mode = own_mode(spec)
    return mode and _held(snapshot, mode)


def _held(snapshot: Snapshot, mode: str) -> str:
    # A person has just undone a plan, and the next plan may look like it: let a person approve that.
    return "approve" if mode == "auto" and snapshot.is_held else mode
