"""Reads a load from CSV: `seconds,service,ratePerSecond`, linear between the rows of a service."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from simulation.limits import MOST_RATE_PER_SECOND
from simulation.measure.load_tables import MOST_SECONDS, number_fault, parse_number, read_table, unknown_service_fault
from simulation.shapes import Shape

COLUMNS = ("seconds", "service", "ratePerSecond")


@dataclass(slots=True)
class RateCurve:
    """The rates of one service at growing seconds; before the first and after the last they stay."""

    seconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def at(self, seconds: float) -> float:
        place = bisect_right(self.seconds, seconds)
        if place == 0:
            return self.rates[0]
        if place == len(self.seconds):
            return self.rates[-1]
        before, after = self.seconds[place - 1], self.seconds[place]
        part = (seconds - before) / (after - before)
        return self.rates[place - 1] + part * (self.rates[place] - self.rates[place - 1])


def read_rates(text: str, source: str, services: Collection[str]) -> dict[str, RateCurve]:
    """Returns the curve of each service that the text names. Raises LoadRefused."""
    curves: dict[str, RateCurve] = {}
    read_table(text, source, COLUMNS, (), lambda row: _take(row, services, curves))
    return curves


def make_shapes(curves: Mapping[str, RateCurve], declared: Mapping[str, float]) -> dict[str, Shape]:
    """Returns each curve as factors of the declared rate; a service without a curve keeps its declared rate."""
    return {name: _shape(curve, declared[name]) for name, curve in curves.items()}


def _shape(curve: RateCurve, declared: float) -> Shape:
    return lambda seconds: curve.at(seconds) / declared


def _take(row: Mapping[str, str], services: Collection[str], curves: dict[str, RateCurve]) -> str:
    """Adds a row to its curve; returns its fault instead if it has one."""
    name = row["service"].strip()
    if name not in services:
        return unknown_service_fault(name, services)
    seconds, rate = parse_number(row["seconds"], MOST_SECONDS), parse_number(row["ratePerSecond"], MOST_RATE_PER_SECOND)
    if seconds is None:
        return number_fault("seconds", row["seconds"], f"{MOST_SECONDS:,.0f}, counted from the start")
    if rate is None:
        return number_fault("ratePerSecond", row["ratePerSecond"], f"{MOST_RATE_PER_SECOND:,}")
    curve = curves.setdefault(name, RateCurve())
    if curve.seconds and seconds <= curve.seconds[-1]:
        previous = f"{curve.seconds[-1]:g}, the value of its previous row"
        return (
            f"seconds {seconds:g} of {name} is not allowed: the seconds of a service must grow, here beyond {previous}"
        )
    curve.seconds.append(seconds)
    curve.rates.append(rate)
    return ""
