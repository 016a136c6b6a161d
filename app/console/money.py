"""Money as the page shows it: only what the ledger and its reports say; what they do not say is not shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Money:
    """Of today, since midnight UTC, as far as it is booked. None: nothing is known of it."""

    currency: str = ""
    today: Decimal | None = None
    by_service: Mapping[str, Decimal] = field(default_factory=dict)  # by tenant/name
    saved: Decimal | None = None  # used: what the plans cost less than the baseline
    against: str = ""  # of all baselines the one that says the least
    realised: Decimal | None = None  # by nodes that were really given back


def summarize_money(currency: str, cost: Rows, savings: Rows, realised: Rows) -> Money:
    """From the reports' rows: cost by tenant and service, savings by baseline, realised in one row."""
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
