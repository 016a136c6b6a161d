"""Reads numbers as people and tools write them."""

from __future__ import annotations

import math
import re

# float() also takes `4_0`, `inf` and digits of other scripts, which in a file or an argument are mistakes.
DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def read_decimal(text: str) -> float:
    """Returns the number that a text writes in decimals; not a number (nan) for any other text."""
    return float(text) if DECIMAL.fullmatch(text) else math.nan
