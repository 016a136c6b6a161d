"""Small made-up fleets for tests of savings: nodes of one kind, and Deployments of whole GPUs with a measured day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.bill import Bill, draw_bill
from clusters.estate import Estate, WorkloadName
from clusters.measured import LatencyPromise, MeasuredLoads, WorkloadSeries
from clusters.objects import objects_of
from clusters.price_list import read_examples, read_prices
from clusters.reading import read_estate
from clusters.savings import ReplicaSaving, Savings, find_savings
from tests.clusters.made_up import Item, deployment, node, pod_spec

STEP_SECONDS = 900
STEPS = 96
PRICES = "prices: [{instanceType: big, perHour: 10}]"


def nodes(count: int, gpus: int, kind: str = "big") -> list[Item]:
    return [node(f"n{at}", gpus, "NVIDIA-L40S", kind) for at in range(count)]


def served(name: str, places: Sequence[str], gpus: int = 1, **more: Any) -> list[Item]:
    return list(deployment("shop", name, pod_spec("image:1", gpus), places, **more))


def named(name: str, kind: str = "Deployment") -> WorkloadName:
    return WorkloadName("shop", kind, name)


def day(
    rates: Sequence[float | None], ready: Sequence[float | None], latency: Sequence[float | None], **more: Any
) -> WorkloadSeries:
    return WorkloadSeries(tuple(rates), tuple(ready), tuple(latency), **more)


def even(rate: float, ready: int, latency: float | None = 50.0, few: Mapping[int, int] | None = None) -> WorkloadSeries:
    """A day at one rate; at the steps of `few` fewer replicas were ready."""
    counts = [(few or {}).get(step, ready) for step in range(STEPS)]
    return day([rate] * STEPS, counts, [latency] * STEPS)


def assessed(items: Sequence[Item], prices: str = PRICES) -> tuple[Estate, Bill]:
    estate = read_estate(objects_of(items))
    return estate, draw_bill(estate, read_examples(), read_prices(prices, "prices.yaml"))


def savings_of(
    items: Sequence[Item],
    loads: Mapping[str, WorkloadSeries],
    prices: str = PRICES,
    passing: float | None = 0.0,
    gaps: int = 0,
) -> Savings:
    """What is saved where every workload promises 100 ms; `passing` is what jobs held on each node; None: unknown.

    It is not known in the first `gaps` steps either.
    """
    estate, bill = assessed(items, prices)
    steps = max((len(series.rates_per_second) for series in loads.values()), default=STEPS)
    measured = MeasuredLoads(
        0.0, STEP_SECONDS, steps, "test", {named(name): series for name, series in loads.items()},
        {} if passing is None else {each.name: (None,) * gaps + (passing,) * (steps - gaps) for each in estate.nodes},
    )  # fmt: skip
    return find_savings(estate, bill, measured, {each.name: LatencyPromise(100.0, "test") for each in estate.workloads})


def of_workload(savings: Savings, name: str) -> ReplicaSaving:
    return next(each for each in savings.workloads if each.workload.name == name)
