"""Formats numbers, shares, money and times for the page: short, and of equal width in a column."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

NOTHING = "\N{EN DASH}"
THIN = "\N{NARROW NO-BREAK SPACE}"


def number(value: float | None) -> str:
    """Returns 1 234, 56.7 or 0.4."""
    if value is None:
        return NOTHING
    digits = 0 if abs(value) >= 100 or value == int(value) else 1
    return f"{value:,.{digits}f}".replace(",", THIN)


def count(found: int, singular: str, plural: str) -> str:
    """Returns 1 service, or 2 services."""
    return f"{number(found)} {singular if found == 1 else plural}"


def percent(share: float | None, digits: int = 1) -> str:
    """Formats a share of 1; a share below 1 never becomes 100 %."""
    if share is None:
        return NOTHING
    text = f"{share * 100:.{digits}f}"
    if share < 1 and float(text) >= 100:
        text = f"{100 - 10**-digits:.{digits}f}"
    return f"{text}{THIN}%"


def money(value: float | Decimal | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}".replace(",", THIN)


def age(seconds: float) -> str:
    """Returns 40 s, 3 min, 5 h or 2 d."""
    for limit, each, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(0, int(seconds // each))}{THIN}{unit}"
    return f"{int(seconds // 86400)}{THIN}d"


def ahead(moment: datetime, now: datetime) -> str:
    """Returns how far ahead a moment is, or how long ago it was: in 40 s, 3 min ago."""
    seconds = (moment - now).total_seconds()
    return f"in {age(seconds)}" if seconds > 0 else f"{age(-seconds)} ago"


def clock(moment: datetime) -> str:
    """Returns the time of day."""
    return moment.strftime("%H:%M:%S")


def day_and_clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def sentence(text: str) -> str:
    """Returns a message as a sentence; a name at its beginning, such as shop/search, stays as it is."""
    first = text.split(" ", 1)[0]
    return f"{text if '/' in first else text[:1].upper() + text[1:]}".removesuffix(".") + "." if text else ""


def words(reason: str) -> str:
    """Returns a reason as people read it."""
    return reason.replace("_", " ")
