"""The modes of the fleet and of its services: advisory, approve or auto."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import Spec, fleet_mode, own_mode

AUTO, APPROVE, ADVISORY = "auto", "approve", "advisory"


@dataclass(frozen=True, slots=True)
class FleetModes:
    """The modes that hold now: of the fleet, and of services that have one of their own."""

    fleet: str
    own: Mapping[str, str]

    def find(self, owner: str) -> str:
        """Returns the mode of a service or job. A job has none of its own."""
        return self.own.get(owner, self.fleet)


def read_modes(declared: Iterable[DeclaredObject], is_held: bool) -> FleetModes:
    """Reads the declared modes; `approve` takes the place of `auto` from a rollback until a person resumes the fleet.

    A person has just undone a plan, and the next plan may look like it: a person approves that.
    """
    policy: Spec = {}
    own: dict[str, str] = {}
    for manifest in declared:
        if manifest.kind == "Policy":
            policy = manifest.spec
        elif manifest.kind == "Service" and (mode := own_mode(manifest.spec)):
            own[manifest.full_name] = _hold(mode, is_held)
    return FleetModes(_hold(fleet_mode(policy), is_held), own)


def _hold(mode: str, is_held: bool) -> str:
    return APPROVE if mode == AUTO and is_held else mode
