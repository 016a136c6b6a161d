"""What a Node's status says of its GPUs: which index is which device, how each is, and what is not as declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.contract import GpuFacts, Inventory
from app.manifests.model import JSON
from app.nodes.detail import AilingGpu
from app.world.conditions import ObjectCondition

MEMORY_TOLERANCE = 0.1  # a driver reports 3..5 % less than the name of a type promises
MOST_NAMED = 5
LONGEST_MESSAGE = 500
WELL_ENOUGH = ("ok", "degraded", "unknown")

Entry = dict[str, JSON]


def fix_indexes(before: Sequence[Mapping[str, JSON]], inventory: Inventory, ailing: Sequence[AilingGpu]) -> list[Entry]:
    """`status.gpus`: an index once fixed to a UUID stays it, also while the device is away or elsewhere."""
    found = {gpu.uuid: gpu for gpu in inventory.gpus}
    of_index: dict[int, str] = {int(str(entry["index"])): str(entry["uuid"]) for entry in before}
    for gpu in inventory.gpus:
        if gpu.index not in of_index and gpu.uuid not in of_index.values():
            of_index[gpu.index] = gpu.uuid
    known = {str(entry["uuid"]): entry for entry in before}
    at_index = {gpu.index: gpu.uuid for gpu in inventory.gpus}
    # The agent speaks of indexes as it found them, and of one that is gone by the index that it had.
    unwell = {at_index.get(gpu.index, of_index.get(gpu.index, "")): gpu for gpu in ailing}
    entries = []
    for index, uuid in sorted(of_index.items()):
        facts = _facts(found[uuid]) if uuid in found else dict(known.get(uuid, {}))
        entries.append({**facts, "index": index, "uuid": uuid, **_health(unwell.get(uuid), uuid in found)})
    return entries


def find_mismatches(
    spec: Mapping[str, JSON],
    types: Mapping[str, Mapping[str, JSON]],
    gpus: Sequence[Mapping[str, JSON]],
    inventory: Inventory,
) -> list[str]:
    """What the machine has that was not declared, or was there when it joined and is not now; a sentence each.

    `types` are the declared GpuTypes of the names that the node's spec and its inventory say.
    """
    said = []
    if len(inventory.gpus) != spec.get("gpus"):
        said.append(f"{spec.get('gpus')} GPUs are declared and {len(inventory.gpus)} were found")
    found = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    at_index = {gpu.index: gpu.uuid for gpu in inventory.gpus}
    uuids = {str(entry["uuid"]) for entry in gpus}
    for entry in gpus:
        index, uuid = int(str(entry["index"])), str(entry["uuid"])
        there = at_index.get(index)
        if uuid in found and found[uuid] != index:
            said.append(f"GPU {index} ({uuid}) is now at index {found[uuid]}")
        elif uuid not in found and there is not None and there not in uuids:
            said.append(f"GPU {index} is {there} and was {uuid}")
        elif uuid not in found:
            said.append(f"GPU {index} ({uuid}) is missing")
    for gpu in inventory.gpus:
        wrong = _wrong_type(gpu, str(spec.get("gpuType", "")), types)
        if wrong:
            said.append(f"GPU {gpu.index} ({gpu.uuid}) {wrong}")
    return said


def mismatch_condition(said: Sequence[str]) -> ObjectCondition:
    """The condition InventoryMismatch."""
    if not said:
        return ObjectCondition(
            "InventoryMismatch", "False", "AsDeclared", "the GPUs are those that were declared and joined"
        )
    return ObjectCondition("InventoryMismatch", "True", "Mismatch", _sentence(said))


def health_condition(gpus: Sequence[Mapping[str, JSON]]) -> ObjectCondition:
    """The condition GpusHealthy: false while one is fenced, has failed, or is said to be what nobody here knows."""
    bad = [entry for entry in gpus if entry.get("fenced") or entry.get("health") not in WELL_ENOUGH]
    if not bad:
        return ObjectCondition("GpusHealthy", "True", "AllHealthy", "no GPU is fenced")
    told = [
        f"GPU {entry['index']} ({entry['uuid']}) is {'fenced' if entry.get('fenced') else entry.get('health')}"
        + (f": {entry['reason']}" if entry.get("reason") else "")
        for entry in bad
    ]
    reason = "Fenced" if any(entry.get("fenced") for entry in bad) else "Failed"
    return ObjectCondition("GpusHealthy", "False", reason, _sentence(told))


def _facts(gpu: GpuFacts) -> Entry:
    able: list[JSON] = [*sorted(gpu.capabilities)]
    facts: Entry = {"address": gpu.address, "gpuType": gpu.gpu_type, "capabilities": able}
    facts |= {"memoryGib": gpu.memory_gib, "smCount": gpu.sm_count}
    return {name: value for name, value in facts.items() if value}


def _health(ailing: AilingGpu | None, present: bool) -> Entry:
    if ailing is not None:
        return {"health": ailing.health, "fenced": ailing.fenced, "reason": ailing.reason}
    if not present:
        return {"health": "failed", "fenced": False, "reason": "missing"}
    return {"health": "ok", "fenced": False, "reason": ""}


def _wrong_type(gpu: GpuFacts, declared: str, types: Mapping[str, Mapping[str, Any]]) -> str:
    """By name only where the name is one of a declared type: else it is the driver's, and the facts count."""
    if gpu.gpu_type in types and gpu.gpu_type != declared:
        return f"is a {gpu.gpu_type}, declared is {declared}"
    kind = types.get(declared, {})
    memory, sms = float(kind.get("memoryGib", 0)), int(kind.get("smCount", 0))
    if gpu.memory_gib and memory and abs(gpu.memory_gib - memory) > MEMORY_TOLERANCE * memory:
        return f"has {gpu.memory_gib:g} GiB, a {declared} has {memory:g}"
    if gpu.sm_count and sms and gpu.sm_count != sms:
        return f"has {gpu.sm_count} SMs, a {declared} has {sms}"
    return ""


def _sentence(said: Sequence[str]) -> str:
    more = f"; and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return ("; ".join(said[:MOST_NAMED]) + more)[:LONGEST_MESSAGE]
