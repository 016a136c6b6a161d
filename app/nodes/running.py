"""Shows what runs on a node: copies with their owners; a tenant sees its own, and the number of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agents.contract.assignments import Assignment
from app.nodes.detail import InstanceOwner, NodeDetail

ANOTHER = "another tenant"


def owners_of(detail: NodeDetail, assignment: Assignment | None) -> dict[str, InstanceOwner]:
    """Returns the owner of each instance: as assigned, or as reported where it is no longer assigned."""
    assigned = (*assignment.instances, *assignment.swapped) if assignment else ()
    return dict(detail.owners) | {line.id: InstanceOwner(line.tenant, line.service, line.job) for line in assigned}


def running(detail: NodeDetail, owners: Mapping[str, InstanceOwner]) -> dict[str, Any]:
    """Returns everything with its owner."""
    return {
        "copies": _owned(detail.copies, owners),
        "heldBack": _owned(detail.held_back, owners),
        "excursions": _owned(detail.excursions, owners),
        "repartition": list(detail.repartition),
    }


def running_of_tenant(detail: NodeDetail, owners: Mapping[str, InstanceOwner], tenant: str) -> dict[str, Any] | None:
    """Returns the tenant's own copies, and how much more there is; None where it has none here.

    Clocks and re-partitions are shown for GPUs that the tenant runs on. Addresses are left out, and so are sentences
    that name something of another tenant.
    """

    def mine(instance: str) -> bool:
        return instance in owners and owners[instance].tenant == tenant

    copies = [copy for copy in detail.copies if mine(copy.instance)]
    held = [change for change in detail.held_back if mine(change.instance)]
    if not copies and not held:
        return None
    gpus = {gpu for copy in copies for gpu in copy.all_gpus}
    moved = [
        excursion
        for excursion in detail.excursions
        if (mine(excursion.instance) if excursion.instance else excursion.gpu in gpus)
    ]
    foreign = _foreign(detail, owners, tenant)
    return {
        "copies": [_shown(line, foreign) for line in _owned(copies, owners)],
        "heldBack": [_shown(line, foreign) for line in _owned(held, owners)],
        "excursions": _owned(moved, owners),
        "repartition": [gpu for gpu in detail.repartition if gpu in gpus],
        "others": {
            "tenant": ANOTHER,
            "copies": len(detail.copies) - len(copies),
            "heldBack": len(detail.held_back) - len(held),
        },
    }


def _owned(lines: Iterable[Any], owners: Mapping[str, InstanceOwner]) -> list[dict[str, Any]]:
    return [
        {**msgspec.to_builtins(owners.get(line.instance, InstanceOwner())), **msgspec.to_builtins(line)}
        for line in lines
    ]


def _shown(line: dict[str, Any], foreign: set[str]) -> dict[str, Any]:
    names_others = any(name in line.get("message", "") for name in foreign)
    return {key: value for key, value in line.items() if key != "address" and not (key == "message" and names_others)}


def _foreign(detail: NodeDetail, owners: Mapping[str, InstanceOwner], tenant: str) -> set[str]:
    """Returns every name of something that belongs to another tenant."""
    named = {copy.instance for copy in detail.copies} | {held.instance for held in detail.held_back} | owners.keys()
    others = {name: owners.get(name, InstanceOwner()) for name in named}
    words = set[str]()
    for name, owner in others.items():
        if owner.tenant != tenant:
            words |= {name, owner.tenant, owner.service, owner.job}
    words |= {copy.id for copy in detail.copies if others[copy.instance].tenant != tenant}
    return words - {""}
