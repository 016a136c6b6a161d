"""The part of a page that shows charts, with links to other ranges of time and to their tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from app.console.charts.drawing import ChartDrawing, TimeChart, chart_rows, draw_chart
from app.console.charts.ranges import DAY, RANGES, TimeRange

Address = Callable[[str, str], str]  # of the page with charts of this range, one of them with its table


@dataclass(frozen=True, slots=True)
class RangeLink:
    """A link to the same page over another range of time."""

    name: str
    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class ChartSection:
    """Drawn charts, the ranges to choose from, and the table of one chart: a page with all tables would be slow."""

    title: str
    drawings: Sequence[ChartDrawing]
    tables: Mapping[str, str]  # by chart: the address that shows its table, or hides it where it is shown
    links: Sequence[RangeLink] = ()
    table: str = ""  # the chart whose table is shown
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()


def draw_section(
    charts: Sequence[TimeChart], span: TimeRange, zone: tzinfo, address: Address, table: str
) -> ChartSection:
    """Draws charts of a range; `table` is the chart that has its table, too."""
    links = [
        RangeLink(known.name, known.words, f"{address(known.name, table)}#charts", known.name == span.name)
        for known in RANGES
    ]
    return _section(f"The last {span.words}", charts, zone, links, lambda shown: address(span.name, shown), table)


def draw_month(charts: Sequence[TimeChart], address: Address, table: str) -> ChartSection:
    """Draws charts of the last 30 days in UTC, as the ledger keeps days; they have no other range."""
    return _section("The last 30 days", charts, UTC, (), lambda shown: address(DAY.name, shown), table)


def _section(
    title: str, charts: Sequence[TimeChart], zone: tzinfo, links: Sequence[RangeLink], address: Callable[[str], str],
    table: str,
) -> ChartSection:  # fmt: skip
    return ChartSection(
        title,
        [draw_chart(chart, title.lower(), zone) for chart in charts],
        {chart.id: f"{address('' if chart.id == table else chart.id)}#chart-{chart.id}" for chart in charts},
        links,
        table,
        next((chart_rows(chart, zone) for chart in charts if chart.id == table), ()),
    )
