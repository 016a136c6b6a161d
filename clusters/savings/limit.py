"""What no plan can go below: GPU-hours that the load needs at the highest rate of a replica, at the lowest price."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from math import inf

from clusters.bill import Bill
from clusters.estate import NOTHING, Estate, WorkloadName
from clusters.savings.floors import ReplicaRules
from clusters.savings.needs import LoadNeed

CERTAIN_SHARE = 1 - 1e-9  # what rounding of floats leaves of a sum


def bound_nano_per_hour(
    estate: Estate,
    bill: Bill,
    rules: Mapping[WorkloadName, ReplicaRules],
    needs: Mapping[WorkloadName, LoadNeed | str],
    steps: int,
    *,
    is_type_kept: bool,
) -> int:
    """Returns a bill that no plan goes below, rounded down.

    A plan may give any replica to any part of a node, at any time of the range. A replica serves no more than one can
    have served in any step, holds as many GPUs as now, and minimum replicas of autoscalers stay; without an autoscaler
    none stays. What was not measured holds what it holds. GPUs that are committed, and those without a known price,
    cost nothing more. `is_type_kept`: each GPU stays of its type, else it is of the cheapest type of the estate.
    """
    prices = {node.node: node for node in bill.nodes}
    committed = sum(node.nano_per_hour or 0 for node in bill.nodes if node.is_committed)
    committed += sum(row.nano_per_hour for row in bill.rows if row.kind == "notRunning")
    covered: dict[str, Fraction] = defaultdict(Fraction)
    cheapest: dict[str, Fraction] = {}
    for node in estate.nodes:
        pool, price = node.product if is_type_kept else "", prices[node.name]
        if price.is_committed or price.nano_per_hour is None:
            covered[pool] += node.gpus
        elif node.gpus:
            each = Fraction(price.nano_per_hour, node.gpus)
            cheapest[pool] = min(each, cheapest.get(pool, each))
    fixed, loads = _demands(estate, rules, needs, is_type_kept=is_type_kept)
    total = Fraction(committed)
    for pool, price_of_gpu in cheapest.items():
        beyond = float(covered[pool] - fixed[pool])
        needed = [load.gpus_by_step(steps) for load in loads[pool]]
        needed.append([0.0] * steps)  # so that there is a column for each step
        hours = sum(max(0.0, sum(asked) - beyond) for asked in zip(*needed, strict=True))
        total += price_of_gpu * Fraction(hours * CERTAIN_SHARE) / steps
    return int(total)


class LeastLoad:
    """The GPUs that a workload needs at least, at each step; whole replicas are not asked for."""

    def __init__(self, gpus_per_replica: Fraction, least: int, most: float, need: LoadNeed) -> None:
        self._gpus, self._least, self._most = float(gpus_per_replica), least, most
        self._rates = need.rates_per_second
        self._highest = need.highest_rate_per_second

    def gpus_by_step(self, steps: int) -> list[float]:
        if not self._highest:
            return [self._gpus * self._least] * steps
        return [self._gpus * max(self._least, min(self._most, rate / self._highest)) for rate in self._rates]


def _demands(
    estate: Estate,
    rules: Mapping[WorkloadName, ReplicaRules],
    needs: Mapping[WorkloadName, LoadNeed | str],
    *,
    is_type_kept: bool,
) -> tuple[dict[str, Fraction], dict[str, list[LeastLoad]]]:
    """Returns by GPU type what stays as it is, and what follows the load."""
    fixed: dict[str, Fraction] = defaultdict(Fraction)
    loads: dict[str, list[LeastLoad]] = defaultdict(list)
    for workload in estate.workloads:
        pods = [pod for pod in estate.pods_of(workload.name) if pod.node in estate.by_node]
        need, rule = needs[workload.name], rules[workload.name]
        if isinstance(need, str) or not workload.is_scalable:
            for pod in pods:
                fixed[estate.by_node[pod.node].product if is_type_kept else ""] += pod.gpus
            continue
        pools = {estate.by_node[pod.node].product if is_type_kept else "" for pod in pods}
        if len(pools) != 1:  # it may go wherever its GPUs cost least, so nothing is certain
            continue
        least = workload.autoscaler.least if workload.autoscaler else 0
        size = sum((pod.gpus for pod in pods), NOTHING) / rule.now
        most = workload.autoscaler.most if workload.autoscaler else inf  # a plan that keeps it serves no more
        loads[pools.pop()].append(LeastLoad(size, min(rule.now, least), most, need))
    return fixed, loads
