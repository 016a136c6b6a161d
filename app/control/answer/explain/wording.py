"""Formats the numbers of explanations: money, rates and times, short and uniform."""

from __future__ import annotations


def money(per_hour: float) -> str:
    """Formats an amount per hour."""
    return f"{per_hour:,.4g}" if abs(per_hour) < 100 else f"{per_hour:,.2f}"


def spell_signed(per_hour: float) -> str:
    """Formats a difference with its sign."""
    return f"{'+' if per_hour > 0 else '-' if per_hour < 0 else ''}{money(abs(per_hour))}"


def rate(per_second: float) -> str:
    """Formats requests in a second."""
    return f"{per_second:,.4g}" if per_second < 10_000 else f"{per_second:,.0f}"


def ms(milliseconds: float) -> str:
    """Formats a time."""
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds:,.0f} ms"


def clock(moment: str) -> str:
    """Returns an RFC 3339 time as people read it: `2026-11-24 21:00:34 UTC`."""
    return f"{moment[:19].replace('T', ' ')} UTC"


def count(number: int, noun: str) -> str:
    """Formats a number with its noun: `3 instances`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
