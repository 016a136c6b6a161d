"""A made-up week whose truth is known minute by minute, and what decisions cost and keep in it; in plain code.

It knows nothing of how the product packs nodes, bounds bills or judges replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, cos, pi
from random import Random

STEP_MINUTES = 15
DAY_MINUTES = 24 * 60
START_MINUTES = 10


@dataclass(frozen=True)
class TrueWorkload:
    """A workload: what one replica can serve, what it is asked for in each minute, and what stood in each step."""

    name: str
    gpus: int
    capacity_per_second: float
    minutes: tuple[float, ...]
    ready: tuple[int, ...]

    def step_minutes(self, step: int) -> Sequence[float]:
        return self.minutes[step * STEP_MINUTES : (step + 1) * STEP_MINUTES]

    def latency_ms(self, step: int) -> float:
        """It keeps 50 ms up to its capacity, and misses its SLO of 100 above."""
        return 50.0 if max(self.step_minutes(step)) <= self.ready[step] * self.capacity_per_second else 400.0


def draw_workload(random: Random, name: str, days: int, most: int, gpus: int = 1) -> TrueWorkload:
    """A load with a daily peak that begins and ends at another time each day, and replicas that follow it by hand."""
    capacity = random.uniform(5, 40)
    top, width = random.uniform(0.4, 0.6), random.uniform(1.5, 3.0)
    minutes, level = [], 1.0
    for minute in range(days * DAY_MINUTES):
        if minute % DAY_MINUTES == 0:
            level = random.uniform(0.75, 1.0)
        wave = 0.5 + 0.5 * cos(2 * pi * (minute / DAY_MINUTES - top))
        minutes.append(most * 0.85 * capacity * level * (0.12 + 0.88 * wave**width) * random.uniform(0.98, 1.02))
    ready = []
    for step in range(len(minutes) // STEP_MINUTES):
        load = max(minutes[step * STEP_MINUTES : (step + 1) * STEP_MINUTES])
        ready.append(min(most, max(1, ceil(load / capacity * random.choice((1.0, 1.02, 1.3))))))
    return TrueWorkload(name, gpus, capacity, tuple(minutes), tuple(ready))


def over_last(counts: Sequence[int], minute: int) -> list[int]:
    """The numbers that were decided within the time that a replica takes to start or to end."""
    return [
        counts[step] for step in range(max(0, (minute - START_MINUTES + 1) // STEP_MINUTES), minute // STEP_MINUTES + 1)
    ]


def pack(replicas: Sequence[tuple[str, int, int]], gpus_per_node: int) -> int:
    """How many nodes hold these replicas, (workload, GPUs, most on a node) each: the largest first, where one fits."""
    nodes: list[list[tuple[str, int]]] = []
    for name, gpus, limit in sorted(replicas, key=lambda replica: (-replica[1], replica[2], replica[0])):
        for node in nodes:
            if sum(size for _, size in node) + gpus <= gpus_per_node and [n for n, _ in node].count(name) < limit:
                node.append((name, gpus))
                break
        else:
            nodes.append([(name, gpus)])
    return len(nodes)


def simulate(
    workloads: Sequence[TrueWorkload],
    decided: Sequence[Sequence[int]],
    most_per_node: Sequence[Sequence[int]],
    gpus_per_node: int,
    first_step: int,
) -> tuple[float, float]:
    """Mean nodes that are paid, and the share of requests that replicas could serve, minute by minute."""
    first, end = first_step * STEP_MINUTES, len(workloads[0].minutes)
    nodes = requests = served = 0.0
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for minute in range(first, end):
        held = tuple(max(over_last(counts, minute)) for counts in decided)
        limits = tuple(limits[minute // STEP_MINUTES] for limits in most_per_node)
        if (held, limits) not in known:
            known[held, limits] = pack(
                [
                    (each.name, each.gpus, limit)
                    for each, count, limit in zip(workloads, held, limits, strict=True)
                    for _ in range(count)
                ],
                gpus_per_node,
            )
        nodes += known[held, limits]
        for each, counts in zip(workloads, decided, strict=True):
            asked = each.minutes[minute]
            requests += asked
            if asked <= min(over_last(counts, minute)) * each.capacity_per_second:
                served += asked
    return nodes / (end - first), served / requests


def cheapest(needs: Sequence[tuple[str, int, int]], nodes: Sequence[tuple[str, int, float]]) -> float:
    """The lowest cost of nodes, (kind, GPUs, price) each, on which needs, (kind, GPUs of a replica, replicas), fit.

    Tries every set of nodes and every way to place replicas there.
    """
    best = float("inf")
    for count in range(len(nodes) + 1):
        for chosen in combinations(nodes, count):
            cost = sum(price for _, _, price in chosen)
            if cost < best and _fits([need for need in needs for _ in range(need[2])], [[k, g] for k, g, _ in chosen]):
                best = cost
    return best


def _fits(replicas: Sequence[tuple[str, int, int]], free: list[list[object]]) -> bool:
    if not replicas:
        return True
    kind, gpus, _ = replicas[0]
    tried = set()
    for node in free:
        room = node[1]
        assert isinstance(room, int)
        if node[0] == kind and room >= gpus and (kind, room) not in tried:
            tried.add((kind, room))
            node[1] = room - gpus
            fits = _fits(replicas[1:], free)
            node[1] = room
            if fits:
                return True
    return False
