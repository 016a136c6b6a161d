"""Reads a trace of requests from CSV: `seconds,service`, a row for each request, in any order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np

from simulation.measure.load_tables import (
    MOST_SECONDS,
    count_fault,
    number_fault,
    parse_number,
    read_table,
    unknown_service_fault,
)
from simulation.serving.arrivals import NO_REQUESTS, PlayedRequests
from simulation.serving.batches import Floats
from simulation.shapes import Shape
from solvers.llm.iteration import MOST_CONTEXT

Request: TypeAlias = tuple[float, int, int]  # its second, and its tokens in and out: 0 where they are not given

COLUMNS = ("seconds", "service")
TOKENS = ("inputTokens", "outputTokens")  # of requests to language models; a row may leave them empty
WINDOW_SECONDS = 30.0  # the rate at a moment is that of the requests around it


def read_requests(text: str, source: str, services: Collection[str]) -> dict[str, PlayedRequests]:
    """Returns the requests to each service in order of time. Raises LoadRefused."""
    found: dict[str, list[Request]] = {}
    read_table(text, source, COLUMNS, TOKENS, lambda row: _take(row, services, found))
    return {name: _sort(requests) for name, requests in found.items()}


def _sort(requests: list[Request]) -> PlayedRequests:
    times = np.array([seconds for seconds, _, _ in requests])
    order = np.argsort(times, kind="stable")
    tokens = np.array([(inputs, outputs) for _, inputs, outputs in requests], dtype=np.int64)[order]
    return PlayedRequests(times[order], tokens[:, 0].copy(), tokens[:, 1].copy())


def make_shapes(requests: Mapping[str, PlayedRequests], declared: Mapping[str, float]) -> dict[str, Shape]:
    """Returns the rates of the trace as factors of declared rates; a service that it does not name has no load."""
    return {name: _shape(requests.get(name, NO_REQUESTS).times, rate) for name, rate in declared.items()}


def _shape(times: Floats, declared: float) -> Shape:
    def factor(seconds: float) -> float:
        around = np.searchsorted(times, (seconds - WINDOW_SECONDS / 2, seconds + WINDOW_SECONDS / 2))
        return float(around[1] - around[0]) / WINDOW_SECONDS / declared

    return factor


def _take(row: Mapping[str, str], services: Collection[str], found: dict[str, list[Request]]) -> str:
    """Adds a request; returns its fault instead if it has one."""
    name = row["service"].strip()
    if name not in services:
        return unknown_service_fault(name, services)
    seconds = parse_number(row["seconds"], MOST_SECONDS)
    if seconds is None:
        return number_fault("seconds", row["seconds"], f"{MOST_SECONDS:,.0f}, counted from the start")
    tokens = []
    for column in TOKENS:
        text = row.get(column, "").strip()
        count = parse_number(text, MOST_CONTEXT) if text else 0.0
        if count is None or count != int(count) or (text and not count):
            return count_fault(column, text, f"{MOST_CONTEXT:,}")
        tokens.append(int(count))
    found.setdefault(name, []).append((seconds, tokens[0], tokens[1]))
    return ""
