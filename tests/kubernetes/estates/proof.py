"""Judges what `assess` says of a drawn estate: by a plain sum, and by the truth, in which every SLO must stay kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from tests.kubernetes.estates.drawing import DrawnEstate
from tests.kubernetes.estates.services import PERCENTILE, DrawnService, keeps

CENT = Decimal("0.01")
SERVED_TIMES = {"latencyMs": "latency", "ttftMs": "first_token", "tpotMs": "token"}


@dataclass(frozen=True)
class Judgement:
    """What came out for one estate. `faults` is empty where all of it is true."""

    faults: tuple[str, ...]
    paid: Decimal  # an hour
    saved_percent: float
    limit_percent: float
    workloads: int
    kept: int  # of them, whose SLO was kept in the past
    fewer: int  # of those kept, that L0 leaves with fewer replicas
    lost: int  # of those with fewer, which a node's loss would leave with a kept SLO today
    nodes: int
    freed: int


def judge(estate: DrawnEstate, recorded: Sequence[Mapping[str, Any]], said: Mapping[str, Any]) -> Judgement:
    """`recorded` are the objects that the server holds, and `said` what `assess -o json` printed of them."""
    faults = list(_bill_faults(estate, recorded, said))
    savings = said["savings"]
    kept = fewer = lost = 0
    by_name = {each["workload"]: each for each in savings["workloads"]}
    freed = {each["name"] for each in savings["nodes"]}
    faults += _room_faults(estate, by_name, freed)
    for service in estate.services:
        found = by_name[service.workload]
        if found["replicas"] != service.now:
            faults.append(f"{service.workload} has {service.now} replicas, not {found['replicas']}")
        slo_ms = _promised(service, found)
        if not slo_ms or not keeps(service.past, slo_ms, PERCENTILE):
            continue
        kept += 1
        if found["needed"] >= service.now:
            continue
        fewer += 1
        if not keeps(service.serve_by(found["needed"]), slo_ms, PERCENTILE):
            faults.append(f"{service.workload} does not keep {slo_ms} by {found['needed']} of {service.now} replicas")
        today = service.now - _together(estate, service)
        if today and keeps(service.serve_by(today), slo_ms, PERCENTILE):
            lost += 1
            if not keeps(service.serve_by(found["survivors"]), slo_ms, PERCENTILE):
                faults.append(f"{service.workload} does not keep {slo_ms} by {found['survivors']}, a node lost")
    paid = Decimal(said["nanoPerHour"])
    return Judgement(
        tuple(faults), _cents(paid), float(100 * savings["nanoPerHour"] / paid),
        float(100 * savings["limitNanoPerHour"] / paid), len(estate.services), kept, fewer, lost,
        len(said["nodes"]), len(freed),
    )  # fmt: skip


def _bill_faults(estate: DrawnEstate, recorded: Sequence[Mapping[str, Any]], said: Mapping[str, Any]) -> Iterator[str]:
    """Adds up what the recorded nodes cost, and what each workload's pods hold of them."""
    nodes = {item["metadata"]["name"]: item["metadata"]["labels"] for item in recorded if item["kind"] == "Node"}
    costs = {}
    reserved, each_reserved = estate.reserved
    for name in sorted(nodes):
        is_spot = nodes[name]["eks.amazonaws.com/capacityType"] == "SPOT"
        if is_spot or reserved == 0:
            costs[name] = estate.prices["spot" if is_spot else "onDemand"]
        else:
            costs[name], reserved = each_reserved, reserved - 1
    total = sum(costs.values()) + reserved * each_reserved
    if _cents(said["nanoPerHour"]) != total.quantize(CENT, ROUND_HALF_UP):
        yield f"{said['nanoPerHour']} billionths are paid, and the nodes cost {total}"
    held: Counter[str] = Counter()
    for item in recorded:
        if item["kind"] == "Pod" and "nodeName" in item["spec"]:
            asked = item["spec"]["containers"][0]["resources"].get("limits", {}).get("nvidia.com/gpu")
            part = Decimal(asked or 0) / estate.kind.gpus / estate.kind.shared_by
            held[_workload(item["metadata"])] += costs[item["spec"]["nodeName"]] * part  # type: ignore[assignment]
    for row in said["rows"]:
        if row["kind"] == "workload" and abs(Decimal(row["nanoPerHour"]) / 10**9 - held[row["label"]]) > CENT / 2:
            yield f"{row['label']} pays {row['nanoPerHour']} billionths, and holds {held[row['label']]} of nodes"


def _workload(metadata: Mapping[str, Any]) -> str:
    labels = metadata.get("labels", {})
    if "leaderworkerset.sigs.k8s.io/name" in labels:
        return f"{metadata['namespace']}/LeaderWorkerSet/{labels['leaderworkerset.sigs.k8s.io/name']}"
    if "app" in labels:
        return f"{metadata['namespace']}/Deployment/{labels['app']}"
    return f"{metadata['namespace']}/Pod/{metadata['name']}"


def _cents(nano: int | Decimal) -> Decimal:
    return (Decimal(nano) / 10**9).quantize(CENT, ROUND_HALF_UP)


def _promised(service: DrawnService, found: Mapping[str, Any]) -> dict[str, float]:
    """Returns what the workload is to keep: its annotations, or what the data says that it keeps today."""
    if service.slo_ms:
        return dict(service.slo_ms)
    promise = (found["load"] or {}).get("promise", {})
    return {time: promise[key] for key, time in SERVED_TIMES.items() if promise.get(key)}


def _together(estate: DrawnEstate, service: DrawnService) -> int:
    """Returns how many replicas of now the loss of one node ends."""
    ended: dict[str, set[str]] = {}
    for item in estate.items:
        labels = item["metadata"].get("labels", {})
        if (
            item["kind"] == "Pod"
            and labels.get("app") == service.name
            and item["metadata"]["namespace"] == (service.namespace)
        ):
            replica = labels.get("leaderworkerset.sigs.k8s.io/group-index", item["metadata"]["name"])
            ended.setdefault(item["spec"]["nodeName"], set()).add(replica)
    return max(map(len, ended.values()))


def _room_faults(estate: DrawnEstate, by_name: Mapping[str, Any], freed: set[str]) -> Iterator[str]:
    """Sees that what stays finds room on what stays of its pool: the largest first."""
    pools = {
        item["metadata"]["name"]: item["metadata"]["labels"]["eks.amazonaws.com/nodegroup"]
        for item in estate.items
        if item["kind"] == "Node"
    }
    sizes: dict[str, list[int]] = {pool: [] for pool in pools.values()}
    where: dict[str, str] = {}
    for item in estate.items:
        if item["kind"] == "Pod" and (node := item["spec"].get("nodeName")):
            if item["metadata"].get("ownerReferences"):
                where[item["metadata"]["labels"]["app"]] = pools[node]
            else:
                sizes[pools[node]].append(1)
    for service in estate.services:
        sizes[where[service.name]] += [service.gpus] * service.pods * by_name[service.workload]["needed"]
    for pool, asked in sizes.items():
        free = [estate.kind.gpus * estate.kind.shared_by for name in pools if name not in freed and pools[name] == pool]
        for size in sorted(asked, reverse=True):
            at = next((at for at, slots in enumerate(free) if slots >= size), None)
            if at is None:
                yield f"{len(asked)} pods find no room on {len(free)} nodes of the pool {pool}"
                break
            free[at] -= size
