"""Finds the instances on nodes, so that a node is not deleted while anything is assigned to it or runs there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from agents.contract.assignments import AssignedInstance, Assignment, owner_name
from app.manifests.model import Kind
from app.problem import HttpProblem
from app.store.fleet import cordons, endpoints

MOST_NAMED = 100
GONE = "gone"  # the stage of a copy whose process, memory and route are gone


class _RunningCopy(msgspec.Struct):
    """The fields of a reported copy that matter here."""

    instance: str
    gpu: int = 0
    stage: str = ""


class _Owner(msgspec.Struct):
    tenant: str = ""
    service: str = ""
    job: str = ""


class _Reported(msgspec.Struct):
    """The fields of a node's last report that matter here."""

    copies: tuple[_RunningCopy, ...] = ()
    owners: Mapping[str, _Owner] = {}


@dataclass(frozen=True, slots=True)
class NodeOccupant:
    """An instance that is assigned to a node or runs there."""

    node: str
    instance: str
    gpu: int
    kind: Kind  # Service or Job
    owner: str  # tenant/name
    rate_per_second: float  # that the plan sends there
    assigned: bool
    stage: str  # of its copy; empty: none runs

    def wire(self) -> dict[str, object]:
        return {
            "node": self.node,
            "instance": self.instance,
            "gpu": self.gpu,
            "kind": str(self.kind),
            "of": self.owner,
            "ratePerSecond": self.rate_per_second,
            "assigned": self.assigned,
            "stage": self.stage or None,
        }


@dataclass(frozen=True, slots=True)
class DeletionCost:
    """The loss by a deletion."""

    instances: int
    services: tuple[str, ...]
    jobs: tuple[str, ...]
    requests_per_second: float

    def wire(self) -> dict[str, object]:
        return {
            "instances": self.instances,
            "services": list(self.services),
            "jobs": list(self.jobs),
            "requestsPerSecond": self.requests_per_second,
        }


def find_occupants(connection: Connection, nodes: Collection[str]) -> list[NodeOccupant]:
    """Returns every instance that is assigned to one of the nodes, or runs there by its last report."""
    found: list[NodeOccupant] = []
    for row in endpoints.read_copies(connection, nodes):
        reported = msgspec.convert(row.detail, _Reported) if row.detail else _Reported()
        assignment = msgspec.json.decode(row.body, type=Assignment) if row.body else None
        assigned = (*assignment.instances, *assignment.swapped) if assignment else ()
        found += occupants_of(row.node, reported, assigned)
    return found


def occupants_of(node: str, reported: _Reported, assigned: Sequence[AssignedInstance]) -> list[NodeOccupant]:
    """Joins assigned and running instances; an instance counts once, however many copies it has."""
    running = {copy.instance: copy for copy in reported.copies if copy.stage != GONE}
    found = [
        NodeOccupant(
            node,
            line.id,
            line.gpu,
            Kind.JOB if line.job else Kind.SERVICE,
            line.owner,
            line.rate_per_second,
            True,
            running[line.id].stage if line.id in running else "",
        )
        for line in assigned
    ]
    known = {line.id for line in assigned}
    for copy in running.values():
        if copy.instance not in known:
            owner = reported.owners.get(copy.instance, _Owner())
            kind = Kind.JOB if owner.job else Kind.SERVICE
            name = owner_name(owner.tenant, owner.service or owner.job)
            found.append(NodeOccupant(node, copy.instance, copy.gpu, kind, name, 0.0, False, copy.stage))
    return found


def cost_of(occupants: Sequence[NodeOccupant]) -> DeletionCost:
    """Sums up the loss with these instances."""
    services = {occupant.owner for occupant in occupants if occupant.kind is Kind.SERVICE}
    jobs = {occupant.owner for occupant in occupants if occupant.kind is Kind.JOB}
    rate = sum(occupant.rate_per_second for occupant in occupants)
    return DeletionCost(len(occupants), tuple(sorted(services)), tuple(sorted(jobs)), round(rate, 3))


def refuse_occupied(connection: Connection, nodes: Collection[str]) -> None:
    """Raises 409 with everything on the nodes, what their deletion would cost, and the way to empty them first."""
    found = find_occupants(connection, nodes) if nodes else []
    if not found:
        return
    cost = cost_of(found)
    named = sorted({occupant.node for occupant in found})
    owners = [*cost.services, *cost.jobs]
    more = f" and {len(owners) - 5} more" if len(owners) > 5 else ""
    count = "one instance is" if cost.instances == 1 else f"{cost.instances} instances are"
    raise HttpProblem(
        "conflict",
        f"node {', '.join(named[:5])} cannot be deleted: {count} assigned to it or running there, of "
        f"{', '.join(owners[:5])}{more}; {_way_to_empty(connection, named)}",
        occupants=[occupant.wire() for occupant in found[:MOST_NAMED]],
        cost=cost.wire(),
    )


def _way_to_empty(connection: Connection, nodes: Sequence[str]) -> str:
    """Names the command that empties the first node, or the one that follows it if all are being drained."""
    cordoned = {
        known.node
        for known in cordons.list_cordons(connection)
        if known.mode in ("drain", cordons.CLUSTER) and known.gpu == cordons.ALL_GPUS
    }
    left = [node for node in nodes if node not in cordoned]
    if left:
        return f"empty it first: gpuwright drain {left[0]}"
    return f"it is being drained, so wait until it is empty: gpuwright describe node {nodes[0]}"
