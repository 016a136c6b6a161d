"""Money and counts in an assessment, as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from app.manifests.prices import NANO
from cli.output import number

CENT_NANO = NANO // 100


def cents_of(amounts: Sequence[int]) -> Iterator[int]:
    """Rounds amounts to cents so that they add up to the rounded sum."""
    total = shown = 0
    for amount in amounts:
        total += amount
        cents = (2 * total + CENT_NANO) // (2 * CENT_NANO)
        yield cents - shown
        shown = cents


def money(nano: int) -> str:
    (cents,) = cents_of([nano])
    return f"{cents / 100:,.2f}"


def gpus_text(gpus: Fraction | int) -> str:
    return number(round(float(gpus), 2))


def count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
