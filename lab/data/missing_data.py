"""The error for a folder of public data that lacks what a benchmark reads."""

from __future__ import annotations


class DataMissing(Exception):
    """The data folder lacks what the benchmark reads."""
