"""Reads a load from CSV: `seconds,service,ratePerSecond`, linear between the rows of a service."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO

from simulation.measure.allowed import MOST_RATE_PER_SECOND
from simulation.shapes import Shape

COLUMNS = ("seconds", "service", "ratePerSecond")
MOST_FAULTS = 20
MOST_NAMES = 10
MOST_SECONDS = 1e9


class RatesRefused(Exception):
    """The text does not give a load; `faults` name each place, what is there, and what is allowed."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


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
    """Returns the curve of each service that the text names. Raises RatesRefused with up to 20 faults."""
    faults: list[str] = []
    curves: dict[str, RateCurve] = {}
    try:
        for line, row in _rows(text, source):
            if fault := _take(row, services, curves):
                faults.append(f"{source}:{line}: {fault}")
                if len(faults) >= MOST_FAULTS:
                    break
    except csv.Error as error:
        faults.append(f"{source}: {error}")
    if not faults and not curves:
        faults.append(f"{source} has no row below its header; give at least one: seconds,service,ratePerSecond")
    if faults:
        raise RatesRefused(faults)
    return curves


def as_shapes(curves: Mapping[str, RateCurve], declared: Mapping[str, float]) -> dict[str, Shape]:
    """Returns each curve as factors of the declared rate; a service without a curve keeps its declared rate."""
    return {name: _shape(curve, declared[name]) for name, curve in curves.items()}


def _shape(curve: RateCurve, declared: float) -> Shape:
    return lambda seconds: curve.at(seconds) / declared


def _rows(text: str, source: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yields each row with its line. Raises RatesRefused if the header lacks a column, or has another or one twice."""
    reader = csv.DictReader(StringIO(text.removeprefix("\ufeff")), strict=True, skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or ()]
    allowed = f"the header must have the columns {','.join(COLUMNS)}, each once"
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise RatesRefused([f"{source}:1: no column {', '.join(missing)}; {allowed}"])
    strange = [name for place, name in enumerate(header) if name not in COLUMNS or name in header[:place]]
    if strange:
        raise RatesRefused([f"{source}:1: column {strange[0]!r} is not expected there; {allowed}"])
    reader.fieldnames = header
    for row in reader:
        yield reader.line_num, row


def _take(row: Mapping[str, str | None], services: Collection[str], curves: dict[str, RateCurve]) -> str:
    """Adds a row to its curve; returns its fault instead if it has one."""
    if None in row or None in row.values():
        return f"the row has another number of fields than the header, which has {len(COLUMNS)}"
    name = (row["service"] or "").strip()
    if name not in services:
        return f"service {name!r} is not declared in the manifests; declared: {_listed(services)}"
    seconds, rate = _number(row["seconds"], MOST_SECONDS), _number(row["ratePerSecond"], MOST_RATE_PER_SECOND)
    if seconds is None:
        return f"seconds {row['seconds']!r} is not allowed: a number from 0 to {MOST_SECONDS:g}"
    if rate is None:
        return f"ratePerSecond {row['ratePerSecond']!r} is not allowed: a number from 0 to {MOST_RATE_PER_SECOND:,}"
    curve = curves.setdefault(name, RateCurve())
    if curve.seconds and seconds <= curve.seconds[-1]:
        previous = f"{curve.seconds[-1]:g}, the value of its previous row"
        return (
            f"seconds {seconds:g} of {name} is not allowed: the seconds of a service must grow, here beyond {previous}"
        )
    curve.seconds.append(seconds)
    curve.rates.append(rate)
    return ""


def _number(text: str | None, most: float) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


def _listed(names: Collection[str]) -> str:
    found = sorted(names)
    more = len(found) - MOST_NAMES
    return ", ".join(found[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
