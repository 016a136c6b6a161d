"""Estates with a measured past, and their backtest as `assess` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusters.backtesting import Backtest, run_backtest
from clusters.measured import LatencyPromise, MeasuredLoads, MeasuredSeries, WorkloadSeries
from clusters.objects import objects_of
from clusters.scaling.adoption import find_known_bounds
from tests.clusters.made_up import Item
from tests.clusters.savings.fleets import STEP_SECONDS, assessed, named

DAY_STEPS = 96
PROMISE = LatencyPromise(100.0, "test")
HOURLY = "prices: [{instanceType: big, perHour: 10}]"
WHOLE = 1e9  # seconds: all that was measured


def backtest(
    items: Sequence[Item],
    loads: dict[str, WorkloadSeries],
    prices: str,
    seconds: float = WHOLE,
    standing: Mapping[str, MeasuredSeries] | None = None,
) -> Backtest:
    estate, bill = assessed(items, prices)
    adopted = find_known_bounds(objects_of(items), estate)
    steps = max(len(series.rates_per_second) for series in loads.values())
    passing = {each.name: (0.0,) * steps for each in estate.nodes}
    found = MeasuredLoads(
        0.0, STEP_SECONDS, steps, "test", {named(name): each for name, each in loads.items()}, passing,
        standing or {},
    )  # fmt: skip
    return run_backtest(estate, bill, found, {each.name: PROMISE for each in estate.workloads}, seconds, adopted)


def falling(most: int, low: int) -> WorkloadSeries:
    """A day and a half: a high load until the evening, an hour of it served by few; then a low one."""
    ready = [low if 40 <= step < 44 else most for step in range(DAY_STEPS + 48)]
    rates = [9.0 * count if step < 80 else 7.0 * low for step, count in enumerate(ready)]
    return WorkloadSeries(tuple(rates), tuple(map(float, ready)), (50.0,) * len(rates))


def hourly(found: Backtest) -> list[float]:
    return [hour.planned_nano / 1e9 for hour in found.hours]
