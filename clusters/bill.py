"""What is paid now, by node and by workload: whole nodes, after reservations, in whole billionths that add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Literal

from app.ledger.division import Shares, divide
from clusters.estate import NOTHING, Estate, GpuNode, GpuPod, UnknownFigure, WorkloadName
from clusters.price_list import CURRENCY, ListedPrice, PriceList, ReservedMachines

HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class NodePrice:
    """What a node costs an hour, and where that is from; None: unknown. What is committed is paid without it, too."""

    node: str
    nano_per_hour: int | None
    source: str
    is_committed: bool = False


@dataclass(frozen=True, slots=True)
class BillRow:
    """A part of the bill: what a workload holds, what nobody holds of a GPU type, or machines that do not run.

    `unpriced_gpus` are those of its GPUs on nodes whose price is unknown: the amount is without them.
    """

    kind: Literal["workload", "idle", "notRunning"]
    label: str
    workload: WorkloadName | None
    gpus: Fraction
    unpriced_gpus: Fraction
    nano_per_hour: int


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of this moment: the rows add up to the nodes and to the reserved machines that do not run."""

    currency: str
    nodes: tuple[NodePrice, ...]  # in the estate's order
    rows: tuple[BillRow, ...]  # workloads by name, then idle GPUs, then machines that do not run
    unknown: tuple[UnknownFigure, ...]

    @property
    def nano_per_hour(self) -> int:
        return sum(row.nano_per_hour for row in self.rows)


def draw_bill(
    estate: Estate, examples: PriceList, given: PriceList | None, measured: Mapping[str, int] | None = None
) -> Bill:
    """Prices every node: by the user's file, else as measured, else by examples; then divides it by the GPUs held."""
    currency = given.currency if given else examples.currency
    covered, unused = _reserve(estate.nodes, given.reservations if given else ())
    prices, unknown = [], list[UnknownFigure]()
    for node in estate.nodes:
        if node.name in covered:
            prices.append(
                NodePrice(node.name, covered[node.name], f"reservation in {given.origin if given else ''}", True)
            )
            continue
        listed = given.price_of(node) if given else None
        if not node.purchase and not (listed and listed.purchase):
            remedy = "give `purchase` for it in the file of --prices"
            unknown.append(UnknownFigure(f"node {node.name}", "no label says how it is paid for", remedy))
        if listed and given:
            is_committed = node.purchase in ("owned", "reserved") or listed.purchase in ("owned", "reserved")
            prices.append(NodePrice(node.name, _price_node(listed, node), given.origin, is_committed))
        elif measured and node.name in measured and currency == CURRENCY:  # OpenCost has its prices in it, too
            prices.append(NodePrice(node.name, measured[node.name], "OpenCost", node.purchase == "reserved"))
        elif currency == examples.currency and (listed := examples.price_of(node)):
            source = f"{examples.origin}, {listed.as_of}"
            prices.append(NodePrice(node.name, _price_node(listed, node), source))
        else:
            prices.append(NodePrice(node.name, None, "unknown"))
    rows = _rows(estate, {price.node: price.nano_per_hour for price in prices})
    return Bill(currency, tuple(prices), (*rows, *unused), (*unknown, *_unknown(estate, prices)))


def _price_node(listed: ListedPrice, node: GpuNode) -> int:
    return listed.nano_per_hour * node.gpus if listed.is_per_gpu else listed.nano_per_hour


def _reserve(
    nodes: Sequence[GpuNode], reservations: Sequence[ReservedMachines]
) -> tuple[dict[str, int], list[BillRow]]:
    """Gives each reservation the first nodes it covers, by name, and returns machines that are paid but do not run."""
    covered: dict[str, int] = {}
    unused = []
    for reservation in reservations:
        free = [node.name for node in nodes if node.name not in covered and reservation.covers(node)]
        taken = free[: reservation.count]
        covered |= dict.fromkeys(taken, reservation.nano_per_hour)
        if rest := reservation.count - len(taken):
            where = f" in {reservation.region}" if reservation.region else ""
            label = f"reserved, not running: {rest} {reservation.instance_type}{where}"
            unused.append(BillRow("notRunning", label, None, NOTHING, NOTHING, rest * reservation.nano_per_hour))
    return covered, unused


def _rows(estate: Estate, prices: Mapping[str, int | None]) -> list[BillRow]:
    by_node: dict[str, list[GpuPod]] = defaultdict(list)
    for pod in estate.pods:
        if pod.gpus:
            by_node[pod.node].append(pod)
    amounts: dict[WorkloadName | str, int] = defaultdict(int)
    gpus: dict[WorkloadName | str, Fraction] = defaultdict(Fraction)
    unpriced: dict[WorkloadName | str, Fraction] = defaultdict(Fraction)
    for node in estate.nodes:
        pods, price = by_node[node.name], prices[node.name]
        held = [pod.gpus for pod in pods]
        idle = max(NOTHING, node.gpus - sum(held, NOTHING))
        holders: list[WorkloadName | str] = [*(pod.workload for pod in pods), node.product or "unknown GPU type"]
        parts = [*held, idle]
        for holder, part, nano in zip(holders, parts, _divide(price or 0, parts), strict=True):
            amounts[holder] += nano
            gpus[holder] += part
            unpriced[holder] += part if price is None else NOTHING
    found = [
        BillRow("workload", str(each.name), each.name, gpus[each.name], unpriced[each.name], amounts[each.name])
        for each in estate.workloads
    ]
    idle_types = sorted(holder for holder in gpus if isinstance(holder, str) and (gpus[holder] or amounts[holder]))
    return found + [
        BillRow("idle", f"idle: {product}", None, gpus[product], unpriced[product], amounts[product])
        for product in idle_types
    ]


def _divide(nano: int, parts: Sequence[Fraction]) -> list[int]:
    """Divides a node's price by the GPUs held and idle; of a node with none at all, everything is idle."""
    common = lcm(*(part.denominator for part in parts))
    whole = [int(part * common) for part in parts]
    if not any(whole):
        whole[-1] = 1
    return divide(nano, Shares(tuple(whole), sum(whole)))


def _unknown(estate: Estate, prices: Sequence[NodePrice]) -> list[UnknownFigure]:
    found = []
    for node, price in zip(estate.nodes, prices, strict=True):
        if price.nano_per_hour is None:
            kind = node.instance_type or "a machine without a label of its type"
            reason = f"no price is known of {kind}{f' in {node.region}' if node.region else ''}"
            reason += f", {_purchase(node)}"
            found.append(UnknownFigure(f"node {node.name}", reason, "give one in the file of --prices"))
    return found


def _purchase(node: GpuNode) -> str:
    words = {
        "": "paid in an unknown way",
        "owned": "owned",
        "reserved": "reserved",
        "onDemand": "on demand",
        "spot": "spot",
    }
    return words[node.purchase]
