"""Traces each cycle: `with phase("solve"):` times a phase for Prometheus and records a span if tracing is on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from app.control.measure import metrics
from app.http import tracing
from app.settings import Settings

_collected: list[tracing.Tracing] = []  # at most a single tracer: a planner is a single process


@contextmanager
def phase(name: str) -> Iterator[dict[str, str]]:
    """Times a phase of a cycle; `cycle` is the whole cycle, and contains the other phases.

    Yields what identifies it beside its measured time: the trace, if there is one, and what its caller adds.
    """
    began = time.perf_counter()
    exemplar: dict[str, str] = {}
    with _collected[0].part(name) if _collected else nullcontext():
        if _collected and (trace_id := _collected[0].current_id()):
            exemplar["trace_id"] = trace_id
        try:
            yield exemplar
        finally:
            metrics.PHASE_SECONDS.labels(name).observe(time.perf_counter() - began, exemplar)


def note(**values: str | int | float | bool) -> None:
    """Adds attributes to the current phase: gpuwright.outcome, gpuwright.generation, ..."""
    if _collected:
        _collected[0].note({f"gpuwright.{name}": value for name, value in values.items()})


def configure(settings: Settings) -> None:
    """Starts to send spans, if an endpoint is set."""
    found = tracing.configure(settings)
    if found:
        close()
        _collected.append(found)


def close() -> None:
    """Sends the remaining spans."""
    while _collected:
        _collected.pop().close()
