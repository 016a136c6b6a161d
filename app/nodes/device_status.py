"""Writes what agents report of their devices into the status of nodes: on change, a few nodes at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from agents.contract.reports import Inventory
from app.manifests.model import JSON, Free, Key, Kind
from app.nodes.detail import AilingGpu
from app.nodes.devices import (
    cap_condition,
    find_differences,
    find_replaced,
    health_condition,
    list_gpus,
    metadata_condition,
    mismatch_condition,
)
from app.nodes.reporting_condition import NODES_AT_ONCE, SYSTEM
from app.store.database import clock, versions
from app.store.fleet import node_state
from app.store.fleet.node_state import ReportedDevices
from app.store.world import audit, events, objects
from app.store.world.events import NewEvent
from app.store.world.objects import StoredObject
from app.world.conditions import set_condition
from app.world.decisions import Action, ObjectDecision
from app.world.write import write

REPLACED = "gpu_replaced"  # the reason of the event

Types = Mapping[str, Mapping[str, JSON]]


def has_news(connection: Connection, only: str = "") -> bool:
    """Returns whether a node, or only this one, has reported devices that its status does not show yet."""
    return bool(node_state.device_changes(connection, 1, only))


def update_device_statuses(connection: Connection, only: str = "") -> int:
    """Updates the statuses of nodes, or of only one, from the reports; returns how many nodes it looked at."""
    if not has_news(connection, only):
        return 0
    latest = versions.lock(connection, "object")
    found = node_state.device_changes(connection, NODES_AT_ONCE, only)
    inventories = {news.node: msgspec.convert(news.inventory, Inventory) for news in found}
    stored = objects.get_many(connection, [Key(Kind.NODE, "", news.node) for news in found])
    types = _types(connection, list(stored.values()), list(inventories.values()))
    now = clock.now(connection)
    decisions, replaced = [], []
    for news in found:
        before = stored[Key(Kind.NODE, "", news.node)]
        after = apply_inventory(before, inventories[news.node], news, types, now)
        if after is not before:
            decisions.append(ObjectDecision(Action.STATUS, before, after))
        gpus = before.status.get("gpus") or []
        replaced += [(news.node, *gpu) for gpu in find_replaced(gpus, inventories[news.node])]
    write(connection, SYSTEM, decisions, latest)
    _record_replaced(connection, replaced)
    node_state.mark_noted(connection, found)  # last, because reports of these nodes wait for it
    return len(found)


def apply_inventory(
    before: StoredObject, inventory: Inventory, news: ReportedDevices, types: Types, now: datetime
) -> StoredObject:
    """Returns the node with its reported status; the same object where nothing has changed."""
    listed = before.status.get("gpus") or []
    ailing = msgspec.convert(news.gpus or [], list[AilingGpu])
    gpus = list_gpus(listed, inventory, ailing, int(str(before.spec.get("gpus"))))
    reported: Free = {
        "gpus": gpus,
        "templates": [*sorted(inventory.templates)],
        "admitted": msgspec.to_builtins(inventory.admitted),
        "agentVersion": inventory.agent_version,
        "driverVersion": inventory.driver_version,
    }
    after = before
    if not inventory.admitted and "admitted" not in before.status:
        del reported["admitted"]  # of most nodes, which have no allow-list
    if any(before.status.get(name) != value for name, value in reported.items()):
        after = replace(before, status={**before.status, **reported}, updated_at=now)
    after = set_condition(after, mismatch_condition(find_differences(before.spec, types, gpus, inventory)), now)
    if "capW" in before.spec or any(condition["type"] == "CapsSettable" for condition in before.conditions):
        after = set_condition(after, cap_condition(before.spec, inventory), now)
    if inventory.metadata or any(condition["type"] == "MetadataBlocked" for condition in before.conditions):
        after = set_condition(after, metadata_condition(inventory.metadata), now)
    return set_condition(after, health_condition(gpus), now)


def _record_replaced(connection: Connection, replaced: Sequence[tuple[str, int, str]]) -> None:
    """Records an event and an entry of the audit for each index that means another device than before."""
    events.record(
        connection,
        [NewEvent(REPLACED, "warning", text, "Node", name=node, about=str(gpu)) for node, gpu, text in replaced],
    )
    audit.record(connection, [SYSTEM.entry("update", "Node", name=node, detail=text) for node, _, text in replaced])


def _types(connection: Connection, nodes: Sequence[StoredObject], inventories: Sequence[Inventory]) -> Types:
    names = {str(node.spec.get("gpuType")) for node in nodes}
    names |= {gpu.gpu_type for inventory in inventories for gpu in inventory.gpus if gpu.gpu_type}
    found = objects.get_many(connection, [Key(Kind.GPU_TYPE, "", name) for name in sorted(names)])
    return {key.name: stored.spec for key, stored in found.items()}
