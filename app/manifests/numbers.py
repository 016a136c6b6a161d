"""Reads numbers in the form that manifests, the command line and CSV files share: digits, a point, an exponent.

Python's `float` alone also takes `4_0`, `infinity` and the digits of any script.
"""

from __future__ import annotations

import math
import re

REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def finite_number(text: str) -> float | None:
    """Returns the number that the text states; None if it states none, or one that is too large."""
    if not REAL.fullmatch(text.strip()):
        return None
    value = float(text)
    return value if math.isfinite(value) else None
