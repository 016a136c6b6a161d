"""Derives the status of a node's GPUs: the device of each index, its health, and differences from the declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.contract.admitted import MetadataState
from agents.contract.reports import GpuFacts, Inventory
from app.manifests.caps import gpu_caps_w
from app.manifests.model import JSON, WrittenSpec
from app.nodes.detail import AilingGpu
from app.world.conditions import ObjectCondition

MEMORY_TOLERANCE_SHARE = 0.1  # a driver reports 3..5 % less than the name of a type promises
MOST_NAMED = 5
LONGEST_MESSAGE = 500
LONGEST_LIST = 380  # beside the remedy
OTHER_DEVICES = "Mismatch"  # nothing is planned there
REMEDIES = {
    OTHER_DEVICES: "nothing is planned there: correct the declaration, or repair the machine",
    "Missing": "the others are used: repair the machine, or drain the node, declare what it has and join it again",
    "Undeclared": "the declared ones are used: declare as many as the node has to use all of them",
}
WELL_ENOUGH = ("ok", "degraded", "unknown")

MISSING = "missing"  # the reason why a GPU has failed of which its agent says nothing

Entry = dict[str, JSON]


@dataclass(frozen=True, slots=True)
class DeviceDifferences:
    """The differences of a node's devices from its declaration, a sentence each.

    Plans go on beside GPUs that are missing and those `beyond` the declared ones, but put nothing on a node whose
    devices are `other` than declared.
    """

    missing: Sequence[str] = ()
    beyond: Sequence[str] = ()
    other: Sequence[str] = ()


def list_gpus(
    before: Sequence[Mapping[str, JSON]], inventory: Inventory, ailing: Sequence[AilingGpu], declared: int
) -> list[Entry]:
    """Returns `status.gpus`: each device at the index that its agent gives it, and the declared GPUs that are missing.

    A missing one keeps the facts that were known of it.
    """
    found: dict[int, Entry] = {gpu.index: {"uuid": gpu.uuid, **_facts(gpu)} for gpu in inventory.gpus}
    there = {gpu.uuid for gpu in inventory.gpus}
    known = {int(str(entry["index"])): dict(entry) for entry in before if entry["uuid"] not in there}
    unwell = {gpu.index: gpu for gpu in ailing}
    entries = []
    for index in sorted({*found, *range(declared)}):
        facts = found.get(index) or known.get(index) or {"uuid": ""}
        gone: Entry = {} if index in found else {"missing": True}
        entries.append({**facts, "index": index, **_health(unwell.get(index), index in found), **gone})
    return entries


def find_differences(
    spec: Mapping[str, JSON],
    types: Mapping[str, Mapping[str, JSON]],
    gpus: Sequence[Mapping[str, JSON]],
    inventory: Inventory,
) -> DeviceDifferences:
    """Returns what differs from the declaration.

    `types` are the declared GpuTypes that the node's spec or its inventory name.
    """
    declared, there = int(str(spec.get("gpus"))), {gpu.index for gpu in inventory.gpus}
    missing = [f"{_name_device(entry)} is missing" for entry in gpus if entry["index"] not in there]
    if inventory.unclear:
        missing.insert(0, inventory.unclear)
    elif missing:
        missing.insert(0, f"{declared} GPUs are declared, but {len(there)} were found")
    beyond = [
        f"GPU {gpu.index} ({gpu.uuid}) is beyond the {declared} declared GPUs, so it is not used"
        for gpu in inventory.gpus
        if gpu.index >= declared
    ]
    other = []
    for gpu in inventory.gpus:
        wrong = gpu.index < declared and _wrong_type(gpu, str(spec.get("gpuType", "")), types)
        if wrong:
            other.append(f"GPU {gpu.index} ({gpu.uuid}) {wrong}")
    return DeviceDifferences(missing, beyond, other)


def find_replaced(before: Sequence[Mapping[str, JSON]], inventory: Inventory) -> list[tuple[int, str]]:
    """Returns the indexes that mean another device than before, and a sentence for each."""
    known = {int(str(entry["index"])): entry for entry in before if entry["uuid"]}
    indexes = {str(entry["uuid"]): index for index, entry in known.items()}
    found = []
    for gpu in inventory.gpus:
        old = known.get(gpu.index)
        if old is None or old["uuid"] == gpu.uuid:
            continue
        told = ""
        if gpu.uuid in indexes:
            told = f", which was GPU {indexes[gpu.uuid]}"
        elif gpu.serial and old.get("serial"):
            told = f", {'the same' if gpu.serial == old['serial'] else 'another'} board"
        at = f" at {gpu.address}" if gpu.address else ""
        found.append((gpu.index, f"GPU {gpu.index} is now {gpu.uuid}{at}{told}; it was {old['uuid']}"))
    return found


def mismatch_condition(found: DeviceDifferences) -> ObjectCondition:
    """Returns the condition InventoryMismatch."""
    texts = [*found.other, *found.missing, *found.beyond]
    if not texts:
        return ObjectCondition("InventoryMismatch", "False", "AsDeclared", "the GPUs are as declared")
    reason = OTHER_DEVICES if found.other else "Missing" if found.missing else "Undeclared"
    return ObjectCondition("InventoryMismatch", "True", reason, f"{_sentence(texts)}; {REMEDIES[reason]}")


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
        f"{_name_device(entry)} is {'fenced' if entry.get('fenced') else entry.get('health')}"
        + (f": {entry['reason']}" if entry.get("reason") else "")
        for entry in bad
    ]
    reason = "Fenced" if any(entry.get("fenced") for entry in bad) else "Failed"
    return ObjectCondition("GpusHealthy", "False", reason, _sentence(texts))


def _facts(gpu: GpuFacts) -> Entry:
    able: list[JSON] = [*sorted(gpu.capabilities)]
    facts: Entry = {"address": gpu.address, "gpuType": gpu.gpu_type, "capabilities": able}
    facts |= {"memoryGib": gpu.memory_gib, "smCount": gpu.sm_count, "serial": gpu.serial}
    return {name: value for name, value in facts.items() if value}


def _health(ailing: AilingGpu | None, present: bool) -> Entry:
    if ailing is not None:
        return {"health": ailing.health, "fenced": ailing.fenced, "reason": ailing.reason}
    if not present:
        return {"health": "failed", "fenced": False, "reason": MISSING}
    return {"health": "ok", "fenced": False, "reason": ""}


def _wrong_type(gpu: GpuFacts, declared: str, types: Mapping[str, WrittenSpec]) -> str:
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
    return ("; ".join(texts[:MOST_NAMED]) + more)[:LONGEST_LIST]


def _name_device(entry: Mapping[str, JSON]) -> str:
    at = f" at {entry['address']}" if entry.get("address") else ""
    return f"GPU {entry['index']} ({entry['uuid']}{at})" if entry["uuid"] else f"GPU {entry['index']}"
