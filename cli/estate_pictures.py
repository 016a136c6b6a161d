"""Pictures of an assessment as SVG: what can be saved of the bill, and how a backtest went hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.console.charts.drawing import BOTTOM, LEFT, RIGHT, TimeChart, TimeSeries, draw_chart
from app.manifests.prices import NANO
from cli.estate_backtest import attainment_text, sum_up
from cli.html_text import HtmlText, element
from cli.money import money
from clusters.backtesting import HOUR_SECONDS, Backtest

WIDTH, BAR_HEIGHT = 1100.0, 30.0


@dataclass(frozen=True, slots=True)
class SavedPart:
    """A part of the bill that can be saved, from one share of it to another."""

    look: str
    label: str
    begins: float
    ends: float


def draw_levels(parts: Sequence[SavedPart], limit: float) -> HtmlText:
    """Draws the bill as a bar: what each level saves of it from the left, and a mark where no plan gets beyond."""
    shapes = [element("rect", class_="fill paid", x=0, y=0, width=WIDTH, height=BAR_HEIGHT, rx=2)]
    for part in parts:
        left, right = (WIDTH * min(1.0, max(0.0, share)) for share in (part.begins, part.ends))
        shapes.append(element("rect", class_=f"fill {part.look}", x=_short(left), y=0, width=_short(right - left),
                              height=BAR_HEIGHT))  # fmt: skip
    mark = SavedPart("limit", f"no plan saves more: {100 * limit:.1f} %", limit, limit)
    at = WIDTH * min(1.0, max(0.0, limit))
    shapes.append(element("path", class_="mark", d=f"M{_short(at)} -5v{BAR_HEIGHT + 10:g}"))
    words = "; ".join(part.label for part in [*parts, mark])
    drawing = element(
        "svg", element("title", words), *shapes, viewBox=f"-2 -7 {WIDTH + 4:g} {BAR_HEIGHT + 14:g}", role="img",
        aria_label=words,
    )  # fmt: skip
    legend = [
        element("li", element("svg", element("rect", class_=f"fill {part.look}", width=20, height=8),
                              viewBox="0 0 20 8", aria_hidden="true"), part.label)
        for part in [*parts, mark]
    ]  # fmt: skip
    caption = element("figcaption", "Of what is paid, from left to right what can be saved")
    return element("figure", caption, drawing, element("ul", *legend, class_="key"))


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
    ticks = "".join(f"M{LEFT:g} {y}H{RIGHT:g}" for y, _ in drawing.value_ticks)
    ticks += "".join(f"M{x} {BOTTOM:g}v5" for x, _ in drawing.time_ticks)
    shapes = [
        element("title", drawing.title),
        element("desc", drawing.sentence),
        element("path", class_="grid", d=ticks),
    ]
    shapes += [element("text", words, class_="v", x=LEFT - 8, y=y + 4) for y, words in drawing.value_ticks]
    shapes += [element("text", words, class_="h", x=x, y=198) for x, words in drawing.time_ticks]
    shapes += [element("path", class_=look, d=path) for look, path in drawing.paths]
    legend = [
        element("li", element("svg", element("path", class_=f"line {series.look}", d="M1 4h20"), viewBox="0 0 22 8",
                              aria_hidden="true"), series.name, " ", element("strong", words), " over all hours")
        for series, words in zip(chart.series, sums, strict=True)
    ]  # fmt: skip
    return element(
        "figure", element("figcaption", chart.title, " ", element("small", f"{chart.unit}, UTC")),
        element("svg", *shapes, viewBox="0 0 600 206", role="img", aria_label=drawing.sentence),
        element("ul", *legend, class_="key"),
    )  # fmt: skip


def _short(value: float) -> str:
    return f"{value:.1f}"
