"""The links between GPUs, as specs of GpuTypes declare them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solvers.pools.links import NETWORK, NVLINK, PCIE, ServerLink

NETWORK_GBIT = 200.0  # of each GPU, where nothing is declared


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of a node, and how many of them NVLink joins; None: as many as the GPU type says."""

    gpus: int
    nvlink_group: int | None = None


def join_gpu_types(
    specs: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, Sequence[NodeGpus]], network_gbit: float = NETWORK_GBIT,
    *, are_all_nodes: bool = False,
) -> list[ServerLink]:  # fmt: skip
    """Returns the links of these GPU types, the quickest kinds first.

    Nodes that may be rented are like the largest of these; where these are all nodes, links join no more than theirs.
    """
    nvlink, pcie = [], []
    for name, spec in sorted(specs.items()):
        own = nodes.get(name, ())
        linked = _count_groups(own, spec.get("nvlinkGroup")) if spec.get("nvlinkGbit") else Counter({1: 1})
        whole = Counter(node.gpus for node in own)
        joined, largest = max(linked, default=1), max(whole, default=1)
        if joined > 1:
            groups = linked if are_all_nodes else None
            nvlink.append(ServerLink(NVLINK, {name: spec["nvlinkGbit"]}, most_gpus=joined, groups=groups))
        if spec.get("pcieGbit") and largest > joined:
            groups = whole if are_all_nodes else None
            pcie.append(ServerLink(PCIE, {name: spec["pcieGbit"]}, most_gpus=largest, groups=groups))
    return [*nvlink, *pcie, *_list_networks(specs, network_gbit)]


def _count_groups(nodes: Sequence[NodeGpus], group: int | None) -> Counter[int]:
    """Returns how many groups of each size NVLink joins: all GPUs of a node unless it, or its type, says fewer."""
    if not nodes:
        return Counter({group or 1: 1})
    found: Counter[int] = Counter()
    for node in nodes:
        joined = min(node.nvlink_group or group or node.gpus, node.gpus)
        found[joined] += node.gpus // joined
        found[node.gpus % joined] += 1
    return +Counter({size: count for size, count in found.items() if size})


def _list_networks(specs: Mapping[str, Mapping[str, Any]], network_gbit: float) -> list[ServerLink]:
    """Returns the network once for each price: a type that sends pays its own, and what is never used has no say."""
    speeds = {name: spec.get("networkGbit") or network_gbit for name, spec in specs.items()}
    prices = {name: spec.get("networkPricePerGib", 0.0) for name, spec in specs.items()}
    levels = sorted(set(prices.values())) or [0.0]
    return [
        ServerLink(NETWORK, speeds, price, senders=frozenset(name for name in prices if prices[name] <= price))
        if price < levels[-1]
        else ServerLink(NETWORK, speeds, price)
        for price in levels
    ]
