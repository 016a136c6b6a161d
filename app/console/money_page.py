"""Words the page Money: today and this month by tenant and by service or job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from app.console.charts.money import WORDS
from app.manifests.model import Free

BY = ("tenant", "service", "job", "kind")
MOST_LINES = 100

Rows = Sequence[Free]


@dataclass(frozen=True, slots=True)
class MoneyLine:
    """The cost of a tenant's service or job, or of unused GPUs; None: nothing is booked."""

    tenant: str
    service: str
    job: str
    words: str  # where it is neither a service nor a job
    today: Decimal | None
    month: Decimal | None

    @property
    def name(self) -> str:
        """Returns tenant/name."""
        return f"{self.tenant}/{self.service or self.job}"


@dataclass(frozen=True, slots=True)
class MoneyTable:
    """The most expensive lines of the month first, and those of unused GPUs last; with the sums of all."""

    lines: Sequence[MoneyLine]
    more: int  # lines that are not shown
    tenants: Sequence[MoneyLine]  # the sums of each tenant; empty where there is only one
    today: Decimal | None
    month: Decimal | None


def span_of(name: str, at: datetime) -> tuple[datetime, datetime]:
    """Returns the days of `today` or `month` as the ledger keeps them, in UTC, up to the next midnight."""
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight.replace(day=1) if name == "month" else midnight), midnight + timedelta(days=1)


def make_table(today: Rows, month: Rows) -> MoneyTable:
    """Puts the rows of both reports, which are by `BY`, next to each other."""
    costs_today, costs_of_month = _costs(today), _costs(month)
    keys = sorted(
        costs_today.keys() | costs_of_month.keys(),
        key=lambda key: (_idle(key), -costs_of_month.get(key, Decimal()), key),
    )
    lines = [_line(key, costs_today.get(key), costs_of_month.get(key)) for key in keys]
    return MoneyTable(
        lines=lines[:MOST_LINES],
        more=max(0, len(lines) - MOST_LINES),
        tenants=_sum_by_tenant(lines),
        today=sum(costs_today.values(), Decimal()) if costs_today else None,
        month=sum(costs_of_month.values(), Decimal()) if costs_of_month else None,
    )


Key = tuple[str, str, str, str]  # as in BY


def _costs(rows: Rows) -> dict[Key, Decimal]:
    return {
        (row["tenant"], row["service"], row["job"], row["kind"]): row["cost"]
        for row in rows
        if row["cost"] is not None
    }  # fmt: skip


def _idle(key: Key) -> bool:
    return key[3] != "used"


def _line(key: Key, today: Decimal | None, month: Decimal | None) -> MoneyLine:
    tenant, service, job, kind = key
    return MoneyLine(tenant, service, job, WORDS.get(f"__{kind}__", "") if _idle(key) else "", today, month)


def _sum_by_tenant(lines: Sequence[MoneyLine]) -> list[MoneyLine]:
    sums: dict[str, tuple[Decimal, Decimal]] = {}
    for line in lines:
        if not line.words:
            today, month = sums.get(line.tenant, (Decimal(), Decimal()))
            sums[line.tenant] = (today + (line.today or Decimal()), month + (line.month or Decimal()))
    if len(sums) < 2:
        return []
    found = [MoneyLine(tenant, "", "", "", today, month) for tenant, (today, month) in sums.items()]
    return sorted(found, key=lambda line: (-(line.month or Decimal()), line.tenant))[:MOST_LINES]
