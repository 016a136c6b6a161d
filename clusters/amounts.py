"""Amounts as Kubernetes writes them: `200m`, `16Gi`, `1e3`."""

from __future__ import annotations

import re
from fractions import Fraction

AMOUNT = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][-+]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE]))?")
GIB = 2**30
MOST_AMOUNT = 10**64  # of a number; as text, so many digits
MOST_DEVICES = 10**6  # of one node or pod
UNITS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": Fraction(10**3),
    **{letter: Fraction(10 ** (6 + 3 * step)) for step, letter in enumerate("MGTPE")},
    **{f"{letter}i": Fraction(1024 ** (1 + step)) for step, letter in enumerate("KMGTPE")},
}  # fmt: skip


def read_amount(text: object) -> Fraction | None:
    """Returns the exact number; None if it is not one."""
    if isinstance(text, int) and not isinstance(text, bool):
        return Fraction(text) if abs(text) < MOST_AMOUNT else None
    match = AMOUNT.fullmatch(text) if isinstance(text, str) and len(text) < 64 else None
    if match is None:
        return None
    digits, exponent, unit = match.groups()
    return Fraction(digits + (exponent or "")) * UNITS.get(unit, Fraction(1))


def read_count(text: object) -> int:
    """Returns a whole number of devices; 0 where there is none, or more than any node has."""
    amount = read_amount(text)
    return int(amount) if amount is not None and 0 < amount <= MOST_DEVICES else 0


def read_gib(text: object) -> float | None:
    amount = read_amount(text)
    return None if amount is None else float(amount / GIB)
