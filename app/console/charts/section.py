"""The part of a page that shows charts, with links to other ranges of time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from app.console.charts.drawing import ChartDrawing, TimeChart, draw_chart
from app.console.charts.ranges import RANGES, TimeRange


@dataclass(frozen=True, slots=True)
class RangeLink:
    """A link to the same page over another range of time."""

    name: str
    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class ChartSection:
    """Drawn charts, and the ranges to choose from."""

    title: str
    drawings: Sequence[ChartDrawing]
    links: Sequence[RangeLink] = ()


def draw_section(
    charts: Sequence[TimeChart], span: TimeRange, zone: tzinfo, address: Callable[[str], str]
) -> ChartSection:
    """Draws charts of a range; `address` returns the page's address with another range."""
    links = [RangeLink(known.name, known.words, address(known.name), known is span) for known in RANGES]
    title = f"The last {span.words}"
    return ChartSection(title, [draw_chart(chart, title.lower(), zone) for chart in charts], links)


def draw_month(charts: Sequence[TimeChart]) -> ChartSection:
    """Draws charts of the last 30 days in UTC, as the ledger keeps days; they have no other range."""
    title = "The last 30 days"
    return ChartSection(title, [draw_chart(chart, title.lower()) for chart in charts])
