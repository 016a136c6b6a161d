"""Shows what runs on a node: copies with their owners; a tenant sees its own, and the number of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NotRequired, TypedDict, TypeVar

from msgspec import structs

from agents.contract.assignments import Assignment
from agents.contract.reports import Copy, Excursion, HeldBack
from app.nodes.detail import InstanceOwner, NodeDetail

ANOTHER = "another tenant"


class OwnedCopy(Copy, kw_only=True):
    """One process of an instance, in its present state, with its owner. During a hand-over an instance has two."""

    tenant: str = ""
    service: str = ""
    job: str = ""


class OwnedHeldBack(HeldBack, kw_only=True):
    """An assigned instance that the node does not start, why, and the smallest room that it lacks, with its owner."""

    tenant: str = ""
    service: str = ""
    job: str = ""


class OwnedExcursion(Excursion, kw_only=True):
    """A knob that the node has moved away from its planned value, inside its frame, with its owner."""

    tenant: str = ""
    service: str = ""
    job: str = ""


Named = TypeVar("Named", OwnedCopy, OwnedHeldBack)
Owned = TypeVar("Owned", OwnedCopy, OwnedHeldBack, OwnedExcursion)


class NodeOthersWire(TypedDict):
    """How much belongs to other tenants."""

    tenant: str
    copies: int
    heldBack: int


class RunningWire(TypedDict):
    """What runs on a node; a tenant gets its own copies, and in `others` how many more there are."""

    copies: list[OwnedCopy]
    heldBack: list[OwnedHeldBack]
    excursions: list[OwnedExcursion]
    repartition: list[int]
    others: NotRequired[NodeOthersWire]


def owners_of(detail: NodeDetail, assignment: Assignment | None) -> dict[str, InstanceOwner]:
    """Returns the owner of each instance: as assigned, or as reported where it is no longer assigned."""
    assigned = (*assignment.instances, *assignment.swapped) if assignment else ()
    return dict(detail.owners) | {line.id: InstanceOwner(line.tenant, line.service, line.job) for line in assigned}


def running(detail: NodeDetail, owners: Mapping[str, InstanceOwner]) -> RunningWire:
    """Returns everything with its owner."""
    return {
        "copies": _add_owners(OwnedCopy, detail.copies, owners),
        "heldBack": _add_owners(OwnedHeldBack, detail.held_back, owners),
        "excursions": _add_owners(OwnedExcursion, detail.excursions, owners),
        "repartition": list(detail.repartition),
    }


def running_of_tenant(detail: NodeDetail, owners: Mapping[str, InstanceOwner], tenant: str) -> RunningWire | None:
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
        "copies": [
            structs.replace(_hide_names(copy, foreign), address="") for copy in _add_owners(OwnedCopy, copies, owners)
        ],
        "heldBack": [_hide_names(change, foreign) for change in _add_owners(OwnedHeldBack, held, owners)],
        "excursions": _add_owners(OwnedExcursion, moved, owners),
        "repartition": [gpu for gpu in detail.repartition if gpu in gpus],
        "others": {
            "tenant": ANOTHER,
            "copies": len(detail.copies) - len(copies),
            "heldBack": len(detail.held_back) - len(held),
        },
    }


def _add_owners(
    kind: type[Owned], lines: Iterable[Copy | HeldBack | Excursion], owners: Mapping[str, InstanceOwner]
) -> list[Owned]:
    return [
        kind(**structs.asdict(line), **structs.asdict(owners.get(line.instance, InstanceOwner()))) for line in lines
    ]


def _hide_names(line: Named, foreign: set[str]) -> Named:
    return structs.replace(line, message="") if any(name in line.message for name in foreign) else line


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
