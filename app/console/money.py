"""Money as the page shows it: only figures of the ledger and its reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from app.manifests.model import Free

Rows = Sequence[Free]


@dataclass(frozen=True, slots=True)
class Money:
    """Money of today, since midnight UTC, as far as it is booked. None: unknown."""

    currency: str = ""
    today: Decimal | None = None
    by_service: Mapping[str, Decimal] = field(default_factory=dict)  # by tenant/name
    saved: Decimal | None = None  # how much less the plans cost than the baseline
    against: str = ""  # the baseline with the lowest savings
    realised: Decimal | None = None  # by nodes that were given back


def summarize_money(currency: str, cost: Rows, savings: Rows, realised: Rows) -> Money:
    """Summarizes rows of reports: cost by tenant and service, savings by baseline, realised savings in one row."""
    booked = [row for row in cost if row["cost"] is not None]
    against = min((row for row in savings if row["saved"] is not None), key=lambda row: row["saved"], default=None)
    given_back = next((row["saved"] for row in realised if row["saved"] is not None), None)
    return Money(
        currency=currency,
        today=sum((row["cost"] for row in booked), Decimal()) if booked else None,
        by_service={f"{row['tenant']}/{row['service']}": row["cost"] for row in booked if row["service"]},
        saved=against["saved"] if against else None,
        against=against["baseline"] if against else "",
        realised=given_back,
    )
