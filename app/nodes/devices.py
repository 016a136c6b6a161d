"""Derives the status of a node's GPUs: the device of each index, its health, and differences from the declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.contract.admitted import MetadataState
from agents.contract.reports import GpuFacts, Inventory
from app.manifests.caps import gpu_caps_w
from app.manifests.model import JSON
from app.nodes.detail import AilingGpu
from app.world.conditions import ObjectCondition

MEMORY_TOLERANCE_SHARE = 0.1  # a driver reports 3..5 % less than the name of a type promises
MOST_NAMED = 5
LONGEST_MESSAGE = 500
WELL_ENOUGH = ("ok", "degraded", "unknown")

Entry = dict[str, JSON]


def fix_indexes(before: Sequence[Mapping[str, JSON]], inventory: Inventory, ailing: Sequence[AilingGpu]) -> list[Entry]:
    """Returns `status.gpus`: an index keeps its UUID, also while the device is missing or at another index."""
    found = {gpu.uuid: gpu for gpu in inventory.gpus}
    of_index: dict[int, str] = {int(str(entry["index"])): str(entry["uuid"]) for entry in before}
    for gpu in inventory.gpus:
        if gpu.index not in of_index and gpu.uuid not in of_index.values():
            of_index[gpu.index] = gpu.uuid
    known = {str(entry["uuid"]): entry for entry in before}
    at_index = {gpu.index: gpu.uuid for gpu in inventory.gpus}
    # The agent uses the indexes that it found, and for a missing device the index that it had.
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
    """Returns what differs from the declaration, or from the machine that joined; a sentence each.

    `types` are the declared GpuTypes that the node's spec or its inventory name.
    """
    texts: list[str] = []
    if len(inventory.gpus) != spec.get("gpus"):
        texts.append(f"{spec.get('gpus')} GPUs are declared, but {len(inventory.gpus)} were found")
    found = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    at_index = {gpu.index: gpu.uuid for gpu in inventory.gpus}
    uuids = {str(entry["uuid"]) for entry in gpus}
    for entry in gpus:
        index, uuid = int(str(entry["index"])), str(entry["uuid"])
        there = at_index.get(index)
        if uuid in found and found[uuid] != index:
            texts.append(f"GPU {index} ({uuid}) is now at index {found[uuid]}")
        elif uuid not in found and there is not None and there not in uuids:
            texts.append(f"GPU {index} is now {there}, and was {uuid}")
        elif uuid not in found:
            texts.append(f"GPU {index} ({uuid}) is missing")
    for gpu in inventory.gpus:
        wrong = _wrong_type(gpu, str(spec.get("gpuType", "")), types)
        if wrong:
            texts.append(f"GPU {gpu.index} ({gpu.uuid}) {wrong}")
    return texts


def mismatch_condition(texts: Sequence[str]) -> ObjectCondition:
    """Returns the condition InventoryMismatch."""
    if not texts:
        return ObjectCondition(
            "InventoryMismatch", "False", "AsDeclared", "the GPUs are as declared, and the same as when the node joined"
        )
    return ObjectCondition("InventoryMismatch", "True", "Mismatch", _sentence(texts))


def cap_condition(spec: Mapping[str, JSON], inventory: Inventory) -> ObjectCondition:
    """Returns the condition CapsSettable: false while a device takes no power limit as low as its capW."""
    caps_w = gpu_caps_w(spec)
    texts = [
        f"GPU {gpu.index} ({gpu.uuid}): capW {caps_w[gpu.index]:g} is below {gpu.power_min_w:g} W, its smallest limit"
        for gpu in inventory.gpus
        if gpu.index < len(caps_w) and caps_w[gpu.index] < gpu.power_min_w
    ]
    if not texts:
        return ObjectCondition("CapsSettable", "True", "AsDeclared", "the devices take capW as their limit")
    message = f"clocks and batches alone keep the cap: {_sentence(texts)}"[:LONGEST_MESSAGE]
    return ObjectCondition("CapsSettable", "False", "BelowSmallest", message)


def metadata_condition(state: MetadataState | None) -> ObjectCondition:
    """Returns the condition MetadataBlocked: false while own runtimes may reach the cloud's metadata address."""
    if state is None:
        return ObjectCondition("MetadataBlocked", "True", "NothingAdmitted", "the node admits no own runtime")
    reason = "Blocked" if state.blocked else "Reachable"
    return ObjectCondition("MetadataBlocked", str(state.blocked), reason, state.message)


def health_condition(gpus: Sequence[Mapping[str, JSON]]) -> ObjectCondition:
    """Returns the condition GpusHealthy: false while a GPU is fenced, has failed, or has an unknown health."""
    bad = [entry for entry in gpus if entry.get("fenced") or entry.get("health") not in WELL_ENOUGH]
    if not bad:
        return ObjectCondition("GpusHealthy", "True", "AllHealthy", "no GPU is fenced")
    texts = [
        f"GPU {entry['index']} ({entry['uuid']}) is {'fenced' if entry.get('fenced') else entry.get('health')}"
        + (f": {entry['reason']}" if entry.get("reason") else "")
        for entry in bad
    ]
    reason = "Fenced" if any(entry.get("fenced") for entry in bad) else "Failed"
    return ObjectCondition("GpusHealthy", "False", reason, _sentence(texts))


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
    """Compares names only where the device has the name of a declared type; otherwise compares memory and SMs."""
    if gpu.gpu_type in types and gpu.gpu_type != declared:
        return f"is a {gpu.gpu_type}, but {declared} is declared"
    kind = types.get(declared, {})
    memory, sms = float(kind.get("memoryGib", 0)), int(kind.get("smCount", 0))
    if gpu.memory_gib and memory and abs(gpu.memory_gib - memory) > MEMORY_TOLERANCE_SHARE * memory:
        return f"has {gpu.memory_gib:g} GiB, but a {declared} has {memory:g}"
    if gpu.sm_count and sms and gpu.sm_count != sms:
        return f"has {gpu.sm_count} SMs, but a {declared} has {sms}"
    return ""


def _sentence(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ("; ".join(texts[:MOST_NAMED]) + more)[:LONGEST_MESSAGE]
