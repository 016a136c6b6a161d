"""How much of a kind of nodes is kept for what sharers need, all together: at least, and at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, sqrt

from clusters.gpu_use import UseInterval
from clusters.sharing.demand import ShareDemand
from clusters.sharing.rooms import OpenKind, keep_for_loss, order_nodes

COMMON = 0.6  # of one demand's error is that of all: what is wrong for one workload may be wrong for others
ROUNDING = 1e-9


def keep_nodes(kind: OpenKind, demands: Sequence[ShareDemand]) -> UseInterval:
    """Returns what stays to be paid for nodes, at least and at most, in billionths an hour."""
    gpus, memory = _add_up(demands), _add_up_memory(kind, demands)
    low, high = max(gpus.low, memory.low), max(gpus.high, memory.high)
    return UseInterval(_price(kind, low), _price(kind, max(low, high)))


def _add_up(demands: Iterable[ShareDemand]) -> UseInterval:
    """Adds demands up. Where they are likely in the middle, they are not all high, or all low, at once."""
    low = high = likely = 0.0
    below, above = list[float](), list[float]()
    for demand in demands:
        if demand.likely_gpus is None:
            low, high = low + demand.gpus.low, high + demand.gpus.high
            continue
        likely += demand.likely_gpus
        below.append(demand.likely_gpus - demand.gpus.low)
        above.append(demand.gpus.high - demand.likely_gpus)
    return UseInterval(low + likely - _add_errors(below), high + likely + _add_errors(above))


def _add_errors(errors: Sequence[float]) -> float:
    own = (1 - COMMON**2) * sum(error**2 for error in errors)
    return sqrt((COMMON * sum(errors)) ** 2 + own)


def _add_up_memory(kind: OpenKind, demands: Sequence[ShareDemand]) -> UseInterval:
    """Returns how many GPUs the memory of the replicas that must stay fills.

    At least as if it could be poured; at most with whole replicas, each beside others of its size alone.
    """
    low = high = 0.0
    for sharer, demand in zip(kind.sharers, demands, strict=True):
        size, memory = kind.memory_gib or 0.0, demand.memory_gib
        low += sharer.least * memory.low / size if size else 0.0
        high += sharer.least / (max(1.0, size // memory.high) if memory.high else 1.0)
    return UseInterval(low, high)


def _price(kind: OpenKind, gpus: float) -> int:
    """Returns what the nodes cost that stay if so many of their GPUs are in use."""
    nodes = max((sharer.least if sharer.is_apart else 1 for sharer in kind.sharers), default=0)
    least = max((sharer.least for sharer in kind.sharers), default=0)  # replicas of one model have a GPU each
    most = sum(node.gpus for node in kind.nodes)
    rest, used = max(least, ceil(min(gpus, float(most)) - ROUNDING)), dict[str, int]()
    for node in order_nodes(kind.nodes):
        if rest <= 0 and len(used) >= nodes:
            break
        used[node.name] = max(1, min(node.gpus, rest))
        rest -= node.gpus
    kept = keep_for_loss(kind, _level(used))
    return sum(node.nano_per_hour for node in kind.nodes if node.name in kept)


def _level(used: Mapping[str, int]) -> dict[str, int]:
    """Returns the same number of GPUs in use, as evenly as whole GPUs allow: the least that a node's loss takes."""
    total, left, found = sum(used.values()), len(used), {}
    for name in sorted(used, key=lambda name: used[name]):
        found[name] = min(used[name], total // left)
        total, left = total - found[name], left - 1
    return found
