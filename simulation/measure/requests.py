"""Reads a trace of requests from CSV: `seconds,service`, a row for each request, in any order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from simulation.measure.load_tables import MOST_SECONDS, no_number_to, number_to, read_table, unknown_service
from simulation.serving import Floats
from simulation.shapes import Shape

COLUMNS = ("seconds", "service")
TOKENS = ("inputTokens", "outputTokens")  # of requests to language models; how long a batch takes depends on neither
WINDOW_SECONDS = 30.0  # the rate at a moment is that of the requests around it


def read_requests(text: str, source: str, services: Collection[str]) -> dict[str, Floats]:
    """Returns the times of the requests to each service, ascending. Raises LoadRefused."""
    found: dict[str, list[float]] = {}
    read_table(text, source, COLUMNS, TOKENS, lambda row: _take(row, services, found))
    return {name: np.sort(np.array(times)) for name, times in found.items()}


def as_shapes(requests: Mapping[str, Floats], declared: Mapping[str, float]) -> dict[str, Shape]:
    """Returns the rates of the trace as factors of declared rates; a service that it does not name has no load."""
    return {name: _shape(requests.get(name, np.zeros(0)), rate) for name, rate in declared.items()}


def _shape(times: Floats, declared: float) -> Shape:
    def factor(seconds: float) -> float:
        around = np.searchsorted(times, (seconds - WINDOW_SECONDS / 2, seconds + WINDOW_SECONDS / 2))
        return float(around[1] - around[0]) / WINDOW_SECONDS / declared

    return factor


def _take(row: Mapping[str, str], services: Collection[str], found: dict[str, list[float]]) -> str:
    """Adds a request; returns its fault instead if it has one."""
    name = row["service"].strip()
    if name not in services:
        return unknown_service(name, services)
    seconds = number_to(row["seconds"], MOST_SECONDS)
    if seconds is None:
        return no_number_to("seconds", row["seconds"], f"{MOST_SECONDS:g}")
    found.setdefault(name, []).append(seconds)
    return ""
