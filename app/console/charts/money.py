"""The charts of money: each day's cost by tenant, and by service and job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.console.charts.drawing import TimeChart, TimeSeries
from app.console.wording import money
from app.store.money.cost_days import DayCost

DAY = timedelta(days=1)
SHOWN_DAYS = 30
LEAST_DAYS = 7
NAMED = 6  # by which a chart can still be read; the others are one sum
WORDS = {"": "All others", "__idle__": "Idle parts of GPUs", "__unallocated__": "GPUs without load"}


def days_until(now: datetime) -> list[datetime]:
    """Returns the days of the trend, the oldest first, in UTC, as the ledger keeps them; the last one is today."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [today - DAY * back for back in range(SHOWN_DAYS - 1, -1, -1)]


def money_charts(
    days: Sequence[datetime], by_tenant: Sequence[DayCost], by_work: Sequence[DayCost], currency: str
) -> list[TimeChart]:
    """Returns the charts of the page Money, from the first day with a cost on; a tenant has no chart by tenant."""
    first = min((cost.day for cost in by_work), default=days[-1])
    days = [day for day in days if day >= min(first, days[-LEAST_DAYS])]
    found = [_chart("tenants", "Cost by tenant", days, by_tenant, currency)] if by_tenant else []
    return [*found, _chart("works", "Cost by service and job", days, by_work, currency)]


def _chart(id_: str, title: str, days: Sequence[datetime], costs: Sequence[DayCost], currency: str) -> TimeChart:
    totals: dict[str, float] = {}
    for cost in costs:
        totals[cost.name] = totals.get(cost.name, 0.0) + cost.cost
    at = {(cost.day, cost.name): cost.cost for cost in costs}
    names = sorted(totals, key=lambda name: (not name, -totals[name], name))  # all others at the end
    series = [
        TimeSeries(WORDS.get(name, name), [at.get((day, name)) for day in days], f"t{place}")
        for place, name in enumerate(names)
    ]
    return TimeChart(
        id_, title, f"{currency} a day, UTC".strip(), days, DAY, series, is_stacked=True, write=money,
        note="As far as it is booked: the ledger follows by quarter-hours.",
    )  # fmt: skip
