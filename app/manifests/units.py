"""Finds the number that a manifest means where it states a unit, or a share in place of a percentage."""

from __future__ import annotations

import re

_WITH_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%][A-Za-z]*|/s|/h|rps|qps)\s*", re.ASCII)
_FACTORS = {  # by the end of the field's name: how many of its unit one of the stated unit is
    "Ms": {"ms": 1.0, "s": 1000.0, "us": 0.001, "m": 60_000.0},
    "Seconds": {"s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0},
    "Minutes": {"m": 1.0, "min": 1.0, "h": 60.0},
    "PerSecond": {"/s": 1.0, "rps": 1.0, "qps": 1.0},
    "PerHour": {"/h": 1.0},
    "Gib": {"gib": 1.0, "gi": 1.0, "mib": 1 / 1024, "mi": 1 / 1024},
    "W": {"w": 1.0, "kw": 1000.0},
    "percentile": {"%": 1.0},
}


def number_meant(field: str, text: str) -> str:
    """Returns the number in the field's own unit; empty where the text has no unit that belongs to the field."""
    stated = _WITH_UNIT.fullmatch(text)
    if stated is None:
        return ""
    for end, factors in _FACTORS.items():
        if field.endswith(end) and stated[2].lower() in factors:
            return f"{float(stated[1]) * factors[stated[2].lower()]:.12g}"
    return ""


def percentage_meant(field: str, value: object) -> str:
    """Returns 98 where a percentile was stated as 0.98."""
    is_share = isinstance(value, float) and 0.5 <= value < 1 and field.endswith("percentile")
    return f"{100 * float(str(value)):.12g}" if is_share else ""
