"""Says that a folder of public data lacks what a benchmark reads."""

from __future__ import annotations


class DataMissing(Exception):
    """The data folder lacks what the benchmark reads."""
