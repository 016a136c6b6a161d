"""The policy's objective, and the carbon that a kilowatt-hour emits by time."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from app.manifests.faults import escape
from app.manifests.model import JSON
from app.manifests.quantities import NotNegative, rule_fault
from app.manifests.spec import Contradiction, Spec, number

HEADER = ["time", "gramsPerKwh"]
MOST_ROWS = 1_000  # six weeks by the hour
MOST_CHARACTERS = 60_000
MOST_GRAMS = 10_000.0

Rows: TypeAlias = tuple[tuple[datetime, float], ...]  # rising; each holds until the next


class ObjectiveWeights(Spec):
    """The cost that a unit of each measure adds to an hour of a plan."""

    money: NotNegative = Field(1, description="For each unit of money: GPUs, energy and carbon at their prices")
    energy_kwh: NotNegative = Field(0, description="For each kilowatt-hour, besides its price")
    carbon_kg: NotNegative = Field(0, description="For each kilogram of CO2 equivalent, besides its price")

    @model_validator(mode="after")
    def _weighs_something(self) -> ObjectiveWeights:
        if not (self.money or self.energy_kwh or self.carbon_kg):
            raise rule_fault("all weights of the objective are 0", "at least one weight over 0")
        return self


def _form(value: object) -> str:
    return "<weights>" if isinstance(value, dict) else "<word>"


Objective: TypeAlias = Annotated[
    Annotated[Literal["money", "energy", "throughput"], Tag("<word>")] | Annotated[ObjectiveWeights, Tag("<weights>")],
    Discriminator(_form),
]


def _intensity(text: str) -> str:
    parse_intensity(text)
    return text


class CarbonSpec(Spec):
    """The price of carbon, and how much of it a kilowatt-hour emits by time."""

    price_per_tonne: NotNegative = Field(0, description="Price of a tonne of CO2 equivalent, part of the energy price")
    intensity: Annotated[str, Field(max_length=MOST_CHARACTERS), AfterValidator(_intensity)] = Field(
        description="CSV with the columns time,gramsPerKwh: RFC 3339 times that rise; a row holds until the next, "
        "the first one also before"
    )


@lru_cache(maxsize=8)
def parse_intensity(text: str) -> Rows:
    """Returns the rows of a CSV of carbon intensity; a fault names the line and what is allowed there."""
    lines = text.splitlines()
    header = [cell.strip() for cell in next(csv.reader(lines[:1]), [])]
    if header != HEADER:
        raise rule_fault(f"line 1: the header is {escape(','.join(header))}", ",".join(HEADER))
    rows: list[tuple[datetime, float]] = []
    for line, cells in enumerate(csv.reader(lines[1:]), start=2):
        if not cells:
            continue
        if len(cells) != len(HEADER):
            raise rule_fault(f"line {line}: {len(cells)} columns", "2 columns: time,gramsPerKwh")
        at, grams = _time(line, cells[0].strip()), _grams(line, cells[1].strip())
        if rows and at <= rows[-1][0]:
            raise rule_fault(f"line {line}: {escape(cells[0])} is not later than the line before", "times that rise")
        rows.append((at, grams))
        if len(rows) > MOST_ROWS:
            raise rule_fault(f"line {line}: too many rows", f"at most {MOST_ROWS:,} rows")
    if not rows:
        raise rule_fault("there is no row below the header", "at least one row")
    return tuple(rows)


def _time(line: int, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.upper())
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        allowed = "RFC 3339 with a time zone, such as 2026-12-01T00:00:00Z"
        raise rule_fault(f"line {line}: {escape(text)!r} is not a time", allowed)
    return at.astimezone(UTC)


def _grams(line: int, text: str) -> float:
    try:
        grams = float(text)
    except ValueError:
        grams = -1.0
    if not (isfinite(grams) and 0 <= grams <= MOST_GRAMS):
        allowed = f"a number 0..{MOST_GRAMS:g}, grams of CO2 equivalent"
        raise rule_fault(f"line {line}: {escape(text)!r} is not an intensity", allowed)
    return grams


def row_at(text: str, now: datetime | None) -> tuple[datetime, float]:
    """Returns the row that holds at a time; without one, the first."""
    rows = parse_intensity(text)
    return rows[0 if now is None else max(0, bisect_right(rows, now, key=lambda row: row[0]) - 1)]


def carbon_without_intensity(spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
    """Yields the fault of an objective that weighs carbon while no intensity is declared."""
    objective = spec.get("objective")
    weight = number(objective.get("carbonKg")) if isinstance(objective, dict) else None
    if weight and not isinstance(spec.get("carbon"), dict):
        message = "the objective weighs carbon, but the policy has no carbon.intensity"
        yield Contradiction("objective.carbonKg", message, "0, or a policy with carbon.intensity", weight)
