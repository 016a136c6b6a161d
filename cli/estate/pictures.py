"""Pictures of an assessment as SVG: what can be saved of the bill, and how a backtest went hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.console.charts.drawing import TimeChart, TimeSeries, draw_chart
from app.manifests.prices import NANO
from cli.estate.backtest import attainment_text, sum_up
from cli.estate.money import money
from cli.estate.savings import share_of
from cli.views.drawings import CHART_BOX, list_shapes
from cli.views.html_text import HtmlText, element
from clusters.backtesting import HOUR_SECONDS, Backtest
from clusters.bill import Bill

WIDTH, BAR_HEIGHT, GAP = 1100.0, 24.0, 7.0


@dataclass(frozen=True, slots=True)
class SavedPart:
    """What a level saves of the bill: an amount, or from `least_nano` up to it; and what no plan of it exceeds."""

    look: str
    label: str
    nano: int
    least_nano: int | None = None
    limit_nano: int | None = None


def draw_levels(parts: Sequence[SavedPart], bill: Bill) -> HtmlText:
    """Draws the bill as a bar for each level, with what it saves from the left, and marks that no plan passes."""
    shapes, legend = list[HtmlText](), list[HtmlText]()
    for row, part in enumerate(parts):
        top, width = row * (BAR_HEIGHT + GAP), _place(part.nano, bill)
        least = width if part.least_nano is None else _place(part.least_nano, bill)
        shapes += [_bar("paid", 0, top, WIDTH), _bar(part.look, 0, top, least)]
        shapes.append(_bar(f"{part.look} maybe", least, top, width - least))
        legend.append(_legend_line(part.look, part.label))
        if part.limit_nano is not None:
            at = _short(_place(part.limit_nano, bill))
            shapes.append(element("path", class_="mark", d=f"M{at} {top - 3:g}v{BAR_HEIGHT + 6:g}"))
            legend.append(_legend_line("limit", f"no plan of this level saves more: {share_of(part.limit_nano, bill)}"))
    words = "; ".join(part.label for part in parts)
    height = len(parts) * (BAR_HEIGHT + GAP) - GAP
    drawing = element(
        "svg", element("title", words), *shapes, viewBox=f"-2 -4 {WIDTH + 4:g} {height + 8:g}", role="img",
        aria_label=words,
    )  # fmt: skip
    caption = element("figcaption", "The bill, and what each level saves of it")
    return element("figure", caption, drawing, element("ul", *legend, class_="key"))


def _legend_line(look: str, words: str) -> HtmlText:
    square = element("rect", class_=f"fill {look}", width=20, height=8)
    return element("li", element("svg", square, viewBox="0 0 20 8", aria_hidden="true"), words)


def _bar(look: str, left: float, top: float, width: float) -> HtmlText:
    return element("rect", class_=f"fill {look}", x=_short(left), y=top, width=_short(width), height=BAR_HEIGHT)


def _place(nano: int, bill: Bill) -> float:
    """Returns where an amount ends in a bar that is the whole bill."""
    return WIDTH * min(1.0, max(0.0, nano / bill.nano_per_hour))


def draw_backtest(found: Backtest, currency: str) -> HtmlText:
    """Draws the bill by the hour beside the limit, and how many requests had enough replicas."""
    bill = TimeChart(
        id="bill", title="The bill", unit=f"{currency} an hour", begins=_begins(found), step=_HOUR,
        series=(
            TimeSeries("paid", [hour.paid_nano / NANO for hour in found.hours], "paid"),
            TimeSeries("by decisions", [hour.planned_nano / NANO for hour in found.hours], "planned"),
            TimeSeries("no plan pays less", [hour.least_nano / NANO for hour in found.hours], "limit"),
        ),
    )  # fmt: skip
    enough = TimeChart(
        id="enough", title="Requests for which replicas were enough", unit="%", begins=_begins(found), step=_HOUR,
        series=(
            TimeSeries("before", [_percent(hour.judged_then.attainment) for hour in found.hours], "paid"),
            TimeSeries("by decisions", [_percent(hour.judged.attainment) for hour in found.hours], "planned"),
        ),
        floor=None, top=100.0,
    )  # fmt: skip
    whole = sum_up("all", found.hours)
    bills = [money(nano) for nano in (whole.paid_nano, whole.planned_nano, whole.paid_nano - whole.limit_nano)]
    shares = [attainment_text(judged) or "unknown" for judged in (whole.judged_then, whole.judged)]
    return element("div", _figure(bill, bills), _figure(enough, shares), class_="pair")


_HOUR = timedelta(seconds=HOUR_SECONDS)


def _begins(found: Backtest) -> list[datetime]:
    return [datetime.fromtimestamp(hour.start, UTC) for hour in found.hours]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _figure(chart: TimeChart, sums: Sequence[str]) -> HtmlText:
    """Draws a chart; `sums` has what each series comes to over all hours."""
    drawing = draw_chart(chart, "hour by hour")
    legend = [
        element("li", element("svg", element("path", class_=f"line {series.look}", d="M1 4h20"), viewBox="0 0 22 8",
                              aria_hidden="true"), series.name, " ", element("strong", words), " over all hours")
        for series, words in zip(chart.series, sums, strict=True)
    ]  # fmt: skip
    return element(
        "figure", element("figcaption", chart.title, " ", element("small", f"{chart.unit}, UTC")),
        element("svg", *list_shapes(drawing), viewBox=CHART_BOX, role="img", aria_label=drawing.sentence),
        element("ul", *legend, class_="key"),
    )  # fmt: skip


def _short(value: float) -> str:
    return f"{value:.1f}"
