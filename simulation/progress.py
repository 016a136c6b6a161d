"""Counts which declared services are served, by the copies that nodes report as routed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from agents.contract.assignments import Assignment
from app.control.observe.observer import EPOCH
from app.nodes.detail import NodeDetail
from app.store.fleet import observed


@dataclass(frozen=True, slots=True)
class ServedProgress:
    """A fleet's progress on its way up."""

    services: int
    waiting: tuple[str, ...]  # those without a routed copy
    copies: int


def read_progress(connection: Connection) -> ServedProgress:
    """Returns the current progress."""
    wanted = {f"{tenant}/{name}" for kind, tenant, name, _ in observed.world(connection) if kind == "Service"}
    owner: dict[str, str] = {}
    for _, _, body in observed.assignments(connection, 0):
        assignment = msgspec.json.decode(body, type=Assignment)
        owner |= {instance.id: instance.owner for instance in assignment.instances if instance.service}
    ready = [
        owner[copy.instance]
        for _, _, detail in observed.details(connection, EPOCH)
        for copy in msgspec.convert(detail, NodeDetail).copies
        if copy.routed and copy.instance in owner
    ]
    return ServedProgress(len(wanted), tuple(sorted(wanted - set(ready))), len(ready))
