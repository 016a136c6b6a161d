"""Numbers, shares, money and times as the page says them: short, and of one width in a column."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

NOTHING = "\N{EN DASH}"
THIN = "\N{NARROW NO-BREAK SPACE}"


def number(value: float | None) -> str:
    """1 234, 56.7, 0.4."""
    if value is None:
        return NOTHING
    digits = 0 if abs(value) >= 100 or value == int(value) else 1
    return f"{value:,.{digits}f}".replace(",", THIN)


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1. What is not whole is never rounded up to it."""
    if share is None:
        return NOTHING
    told = f"{share * 100:.{digits}f}"
    if share < 1 and float(told) >= 100:
        told = f"{100 - 10**-digits:.{digits}f}"
    return f"{told}{THIN}%"


def money(value: float | Decimal | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}".replace(",", THIN)


def age(seconds: float) -> str:
    """40 s, 3 min, 5 h, 2 d."""
    for limit, each, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(0, int(seconds // each))}{THIN}{unit}"
    return f"{int(seconds // 86400)}{THIN}d"


def clock(moment: datetime) -> str:
    """The time of day in UTC."""
    return moment.strftime("%H:%M:%S")


def words(reason: str) -> str:
    """A reason as people read it."""
    return reason.replace("_", " ")
