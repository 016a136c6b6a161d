"""Money as the page shows it: only what the ledger and its reports say; what they do not say is not shown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Money:
    """Of today, since midnight UTC. None: nothing is known of it."""

    currency: str = ""
    today: Decimal | None = None
    saved: Decimal | None = None  # used, against the baseline
    against: str = ""  # the baseline
    realised: Decimal | None = None  # by nodes that were really given back
