"""Draws where the money of an hour goes: what is held, for what it is planned, and the least possible. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.api.answers.overview import OverviewServiceWire
from app.console.charts.drawing import LEFT, RIGHT, ChartDrawing, LegendLine, draw_bar, place_y
from app.console.charts.scales import ValueAxis, value_axis
from app.console.links import plan_link
from app.console.wording import money
from solvers.planning.certificate_wire import PlanCertificateWire
from solvers.planning.plan_fields import gpu_bound

BAR_SHARE = 0.5  # of a column's width
SERVICES, FLEET, COST = "/services?sort=cost", "/#fleet", "/?table=cost#chart-cost"


@dataclass(frozen=True, slots=True)
class MoneyPart:
    """A part of what an hour costs, with its look, what it is, and the page that has its rows."""

    look: str
    name: str
    per_hour: float
    words: str
    href: str


@dataclass(frozen=True, slots=True)
class MoneyColumn:
    """A sum and its parts, the first at the bottom."""

    name: str
    per_hour: float
    parts: Sequence[MoneyPart]


@dataclass(frozen=True, slots=True)
class SpendingFigure:
    """The columns drawn, and each as rows."""

    drawing: ChartDrawing
    columns: Sequence[MoneyColumn]


def draw_spending(
    services: Sequence[OverviewServiceWire], held: float | None, certificate: PlanCertificateWire | None, plan: int,
    currency: str,
) -> SpendingFigure | None:  # fmt: skip
    """Draws the plan in force against what is held and against its bound, if it has one; None: prices are unknown."""
    if all(service["pricePerHour"] is None for service in services):
        return None
    parts = _divide_planned(services, certificate)
    planned = sum(part.per_hour for part in parts)
    columns = [MoneyColumn("Planned", planned, parts)]
    if held is not None:
        columns.insert(0, MoneyColumn("Held now", held, _divide_held(parts, held, planned)))
    columns += _divide_bound(certificate, plan)
    return SpendingFigure(_draw(columns, currency), columns)


def _divide_planned(
    services: Sequence[OverviewServiceWire], certificate: PlanCertificateWire | None
) -> list[MoneyPart]:  # fmt: skip
    paid = sum(service["pricePerHour"] or 0.0 for service in services)
    idle = sum(service["idlePerHour"] or 0.0 for service in services)
    headroom = sum(map(_price_headroom, services))
    energy = max(0.0, certificate["resourceCost"] - paid) if certificate else 0.0
    return [
        MoneyPart("t0", "Current requests", max(0.0, paid + energy - idle - headroom),
                  "the part of the copies that the requests of the last minute use", SERVICES),
        MoneyPart("t5", "Headroom", headroom,
                  "for requests that are planned for and did not come in the last minute", SERVICES),
        MoneyPart("t6", "Idle parts", idle, "parts of used GPUs that no service uses; jobs may run there", FLEET),
    ]  # fmt: skip


def _price_headroom(service: OverviewServiceWire) -> float:
    """Returns what a service pays for a rate that does not come; nothing while no rate is known."""
    rate, planned = service["ratePerSecond"], service["plannedPerSecond"]
    if rate is None or planned <= rate:
        return 0.0
    return ((service["pricePerHour"] or 0.0) - (service["idlePerHour"] or 0.0)) * (1.0 - rate / planned)


def _divide_held(parts: Sequence[MoneyPart], held: float, planned: float) -> list[MoneyPart]:
    """Returns as much of the planned parts as is held, and what is held beyond the plan."""
    share = min(1.0, held / planned) if planned else 0.0
    scaled = [MoneyPart(part.look, part.name, share * part.per_hour, part.words, part.href) for part in parts]
    beyond = max(0.0, held - planned)
    return [*scaled, MoneyPart("t3", "Hand-overs", beyond, "copies starting or leaving", COST)]


def _divide_bound(certificate: PlanCertificateWire | None, plan: int) -> Iterator[MoneyColumn]:
    """Yields the plan's cost again, by what is proved of it; nothing where no bound holds."""
    least = gpu_bound(certificate) if certificate else None
    if certificate is None or least is None:
        return
    cost, programme = certificate["resourceCost"], certificate.get("programme")
    unserved = certificate["unservedCost"]
    least = min(least, cost)
    between = min(max(least, programme - unserved), cost) if programme is not None else least
    how = f"{plan_link(plan)}#how"
    yield MoneyColumn(
        "Against the bound", cost,
        [
            MoneyPart("t2", "Least possible", least, "no plan that serves as much costs less", how),
            MoneyPart("t4", "Unproved gap", between - least, "how far the bound may be too low", how),
            MoneyPart("t1", "Whole copies and GPUs", cost - between,
                      "the cost of whole numbers, and of what the search did not find", how),
        ],
    )  # fmt: skip


def _draw(columns: Sequence[MoneyColumn], currency: str) -> ChartDrawing:
    axis = value_axis([sum(part.per_hour for part in column.parts) for column in columns], 0.0, None)
    wide = (RIGHT - LEFT) / len(columns)
    legend = {part.look: part for column in columns for part in column.parts if part.per_hour > 0}
    return ChartDrawing(
        id="spending", title="Where the money goes", unit=f"{currency} an hour".strip(), note="",
        sentence="; ".join(map(_spell_column, columns)) + ".",
        is_empty=False, is_stacked=True,
        value_ticks=tuple((round(place_y(axis.place(tick)), 1), axis.label(tick)) for tick in axis.ticks),
        time_ticks=tuple((round(LEFT + wide * (at + 0.5), 1), column.name) for at, column in enumerate(columns)),
        paths=tuple(path for at, column in enumerate(columns) for path in _draw_column(column, axis, at, wide)),
        legend=tuple(LegendLine(look, part.name, money(part.per_hour)) for look, part in legend.items()),
    )  # fmt: skip


def _draw_column(column: MoneyColumn, axis: ValueAxis, at: int, wide: float) -> Iterator[tuple[str, str]]:
    base = 0.0
    for part in column.parts:
        if part.per_hour > 0:
            left, high = LEFT + wide * (at + (1 - BAR_SHARE) / 2), base + part.per_hour
            yield f"bar {part.look}", draw_bar(left, wide * BAR_SHARE, axis.place(base), axis.place(high))
            base = high


def _spell_column(column: MoneyColumn) -> str:
    parts = ", ".join(f"{part.name} {money(part.per_hour)}" for part in column.parts)
    return f"{column.name} {money(column.per_hour)}: {parts}"
