"""The figures that a report of another tool has of one batch size."""

from __future__ import annotations

from dataclasses import dataclass

from app.manifests.numbers import finite_number

LARGEST_BATCH = 256


class ReportRefused(Exception):
    """A report that cannot be used; the message names the file, what is wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class ToolReport:
    """A file of another tool."""

    name: str
    text: str
    batch: int | None = None  # as its user states it, where the report does not

    def refused(self, why: str) -> ReportRefused:
        return ReportRefused(f"{self.name}: {why}")


@dataclass(frozen=True, slots=True)
class Figures:
    """A tool's measurements of batches of one size; 0 for what it does not report."""

    batch: int
    latency_ms: float = 0.0
    spread_ms: float = 0.0
    samples: int = 1
    source: str = "server"  # whose clock: server, client
    memory_gib: float = 0.0


def number(report: ToolReport, field: str, value: object) -> float:
    """Returns a finite number of at least 0; raises ReportRefused."""
    found: float | None = None
    if isinstance(value, str):
        found = finite_number(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = value
    if found is None or not 0 <= found <= 1e12:
        raise report.refused(f"{field} is {str(value)[:40]!r}; allowed is a number from 0 to 1e12")
    return float(found)


def batch_of(report: ToolReport, field: str, value: object) -> int:
    """Returns a batch size; raises ReportRefused."""
    found = number(report, field, value)
    if found != int(found) or not 1 <= found <= LARGEST_BATCH:
        raise report.refused(f"{field} is {found:g}; allowed are whole numbers 1..{LARGEST_BATCH}")
    return int(found)
