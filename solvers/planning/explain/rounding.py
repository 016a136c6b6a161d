"""Rounds the numbers that a proposal names, to the safe side."""

from __future__ import annotations

from math import ceil, floor, log10


def rounded_up(value: float) -> float:
    """Rounds up to four digits."""
    step = 10.0 ** (floor(log10(value)) - 3) if value > 0 else 1.0
    return float(f"{ceil(value / step * (1 - 1e-12)) * step:.4g}")


def rounded_down(value: float) -> float:
    """Rounds down to four digits."""
    if not value > 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) - 3)
    return float(f"{floor(value / step * (1 + 1e-12)) * step:.4g}")


def percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"
