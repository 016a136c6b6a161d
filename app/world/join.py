"""A node that joins creates its Node, unless an operator has declared it already."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from app.manifests.model import API_VERSION, JSON, Key, Kind
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.store.world import objects
from app.world.consistent import invalid
from app.world.declare import declare
from app.world.write import Actor


def join_node(connection: Connection, actor: Actor, name: str, spec: Mapping[str, JSON]) -> str:
    """Declares the node as it describes itself, except for fields an operator declared; returns why it may not join.

    A node may be declared with fewer GPUs than it has, but not with GPUs of another type: it would be planned by the
    speeds of those. What is known of the devices of a node that joins again is compared with its next report.
    """
    there = objects.get(connection, Key(Kind.NODE, "", name))
    if there is not None:
        declared, brought = there.spec.get("gpuType"), spec.get("gpuType")
        if brought is not None and brought != declared:
            return (
                f"node {name} is declared with gpuType {declared}, but its machine has {brought}; "
                "change the declaration or the machine"
            )
        return ""
    document: dict[str, JSON] = {
        "apiVersion": API_VERSION,
        "kind": str(Kind.NODE),
        "metadata": {"name": name},
        "spec": dict(spec),
    }
    manifests, faults = validate([Document("join", document)], default_tenant="default", offline=False)
    if faults:
        raise invalid(faults)
    declare(connection, actor, manifests)
    return ""
