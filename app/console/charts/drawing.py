"""Draws a chart of time: lines with gaps where nothing is known, or stacked bars; and the same data in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby

from app.console.charts.scales import ValueAxis, time_ticks, value_axis
from app.console.wording import number

# In the drawing's own units; charts.html draws the grid between the same places.
LEFT, RIGHT, TOP, BOTTOM = 62.0, 572.0, 12.0, 176.0  # of what lies between the axes
BAR_SHARE = 0.8  # of a step's width
RING = 5.0  # radius

Values = Sequence[float | None]
Write = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A name in words, and a value for each step of time; None: unknown. `look` is a CSS class.

    A band has its upper edge in `tops`, known where its lower one is.
    """

    name: str
    values: Values
    look: str
    is_promise: bool = False  # the same at every step, whatever happened
    tops: Values = ()


@dataclass(frozen=True, slots=True)
class TimeChart:
    """The content of a chart: series over the same steps of time, the oldest step first."""

    id: str
    title: str
    unit: str
    begins: Sequence[datetime]
    step: timedelta
    series: Sequence[TimeSeries]
    is_stacked: bool = False  # bars, one series on top of the other; else lines
    floor: float | None = 0.0  # where the value axis begins; None: below the least value
    top: float | None = None  # where it ends; None: above the greatest value
    write: Write = number
    scale: float = 1.0  # of the marks of the axis: 100 where values are shares and marks are percent
    note: str = ""

    @property
    def measured(self) -> Sequence[TimeSeries]:
        """Returns the series that say something happened; a promise alone does not."""
        return [line for line in self.series if not line.is_promise]


@dataclass(frozen=True, slots=True)
class LegendLine:
    """A series in the legend, with its latest known value; of bars, with their sum."""

    look: str
    name: str
    words: str
    is_band: bool = False


@dataclass(frozen=True, slots=True)
class ChartDrawing:
    """A chart ready for the template."""

    id: str
    title: str
    unit: str
    note: str
    sentence: str  # the latest value and the range of each series
    is_empty: bool
    is_stacked: bool
    value_ticks: tuple[tuple[float, str], ...]  # (y, words)
    time_ticks: tuple[tuple[float, str], ...]  # (x, words)
    paths: tuple[tuple[str, str], ...]  # (class, path)
    legend: tuple[LegendLine, ...]


def draw_chart(chart: TimeChart, span: str, zone: tzinfo = UTC) -> ChartDrawing:
    """Draws a chart; `span` names its range of time in words, as in `the last 24 hours`."""
    ends = chart.begins[-1] + chart.step
    axis = value_axis([value * chart.scale for value in _heights(chart)], chart.floor, chart.top)
    length = (ends - chart.begins[0]).total_seconds()

    def x(moment: datetime) -> float:
        return LEFT + (RIGHT - LEFT) * (moment - chart.begins[0]).total_seconds() / length

    paths = _bars(chart, axis, x) if chart.is_stacked else _lines(chart, axis, x)
    return ChartDrawing(
        id=chart.id,
        title=chart.title,
        unit=chart.unit,
        note=chart.note,
        sentence=_sentence(chart, span, zone),
        is_empty=not _known(chart),
        is_stacked=chart.is_stacked,
        value_ticks=tuple((round(place_y(axis.place(tick)), 1), axis.label(tick)) for tick in axis.ticks),
        time_ticks=tuple((round(x(at), 1), words) for at, words in time_ticks(chart.begins[0], ends, zone)),
        paths=tuple(paths),
        legend=tuple(
            LegendLine(series.look, series.name, _summarize(chart, series), bool(series.tops))
            for series in chart.series
        ),
    )


def chart_rows(chart: TimeChart, zone: tzinfo) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns the chart as a table: the time in words and the values of each known step, the newest first."""
    return tuple(
        (_words(chart.begins[index], chart.step, zone),
         tuple(_write_value(chart, series, index) for series in chart.series))
        for index in reversed(_known(chart))
    )  # fmt: skip


def _known(chart: TimeChart) -> list[int]:
    """Returns the steps of which something is known."""
    return [
        index for index in range(len(chart.begins)) if any(line.values[index] is not None for line in chart.measured)
    ]


def _heights(chart: TimeChart) -> list[float]:
    """Returns every height that the axis has to reach."""
    if not chart.is_stacked:
        edges = [edge for series in chart.series for edge in (series.values, series.tops)]
        return [value for edge in edges for value in edge if value is not None]
    columns = zip(*(series.values for series in chart.series), strict=True)
    return [sum(value or 0.0 for value in column) for column in columns]


def _lines(chart: TimeChart, axis: ValueAxis, x: Callable[[datetime], float]) -> Iterator[tuple[str, str]]:
    """Draws each series from middle to middle of its steps; a lone value becomes a dot by its round ends."""
    middle = chart.step / 2
    for series in chart.series:
        if series.tops:
            yield from _draw_band(chart, series, axis, x)
            continue
        parts, is_open = [], False
        for begin, value in zip(chart.begins, series.values, strict=True):
            if value is None:
                is_open = False
                continue
            place = f"{_short(x(begin + middle))} {_short(place_y(axis.place(value * chart.scale)))}"
            parts.append(f"L{place}" if is_open else f"M{place}h0")
            is_open = True
        if parts:
            yield f"line {series.look}", "".join(parts)


def _draw_band(
    chart: TimeChart, series: TimeSeries, axis: ValueAxis, x: Callable[[datetime], float]
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Draws the area between the edges of a band, over the whole of each step; one step is a box."""
    parts: list[str] = []
    for is_known, steps in groupby(range(len(series.values)), lambda at: series.values[at] is not None):
        if not is_known:
            continue
        edges: list[list[str]] = [[], []]
        for at in steps:
            for edge, values in zip(edges, (series.tops, series.values), strict=True):
                y = _short(place_y(axis.place((values[at] or 0.0) * chart.scale)))
                edge += [f"{_short(x(begin))} {y}" for begin in (chart.begins[at], chart.begins[at] + chart.step)]
        parts.append(f"M{'L'.join([*edges[0], *reversed(edges[1])])}z")
    if parts:
        yield f"band {series.look}", "".join(parts)


def _bars(chart: TimeChart, axis: ValueAxis, x: Callable[[datetime], float]) -> Iterator[tuple[str, str]]:
    """Draws the series on top of each other, the first one at the bottom."""
    bases = [0.0] * len(chart.begins)
    wide = (RIGHT - LEFT) / len(chart.begins)
    for series in chart.series:
        parts = []
        for index, value in enumerate(series.values):
            if not value or value < 0:
                continue
            low, high = axis.place(bases[index] * chart.scale), axis.place((bases[index] + value) * chart.scale)
            left = x(chart.begins[index]) + wide * (1 - BAR_SHARE) / 2
            parts.append(draw_bar(left, wide * BAR_SHARE, low, high))
            bases[index] += value
        if parts:
            yield f"bar {series.look}", "".join(parts)


def _sentence(chart: TimeChart, span: str, zone: tzinfo) -> str:
    """Says for each series the latest value, and between which values it was; of bars, their sum."""
    facts = []
    for series in chart.series:
        known = [value for value in series.values if value is not None]
        if not known:
            facts.append(f"{series.name}: unknown")
            continue
        index, latest = _latest(series.values)
        if series.tops:
            when = _words(chart.begins[index], chart.step, zone)
            facts.append(f"{series.name}: {_write_value(chart, series, index)} at {when}")
            continue
        if chart.is_stacked:
            facts.append(f"{series.name}: {chart.write(sum(known))} in all")
            continue
        when = _words(chart.begins[index], chart.step, zone)
        between = f"between {chart.write(min(known))} and {chart.write(max(known))}"
        facts.append(f"{series.name}: {chart.write(latest)} at {when}, {between}")
    return f"{chart.title}, {chart.unit}, {span}. {'; '.join(facts)}."


def _summarize(chart: TimeChart, series: TimeSeries) -> str:
    """Returns the latest known value; of bars, their sum."""
    if chart.is_stacked:
        return chart.write(sum(value for value in series.values if value is not None))
    return _write_value(chart, series, _latest(series.values)[0])


def _write_value(chart: TimeChart, series: TimeSeries, at: int) -> str:
    """Returns the value of a step in words; of a band both its edges."""
    low = series.values[at]
    return (
        f"{chart.write(low)} to {chart.write(series.tops[at])}" if series.tops and low is not None else chart.write(low)
    )


def _latest(values: Values) -> tuple[int, float | None]:
    """Returns the last known value with its step; None where nothing is known."""
    return next(((at, values[at]) for at in range(len(values) - 1, -1, -1) if values[at] is not None), (0, None))


def _words(moment: datetime, step: timedelta, zone: tzinfo) -> str:
    local = moment.astimezone(zone)
    return f"{local.day} {local:%b}" if step >= timedelta(days=1) else f"{local.day} {local:%b %H:%M}"


def place_x(share: float) -> float:
    """Returns how far right in the picture a share of the width is."""
    return LEFT + (RIGHT - LEFT) * share


def place_y(share: float) -> float:
    """Returns the height in the picture of a share of the axis."""
    return BOTTOM - (BOTTOM - TOP) * share


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def draw_bar(left: float, wide: float, low: float, high: float) -> str:
    """Returns the path of a bar between two shares of the axis."""
    across, up = _short(wide), _short((high - low) * (BOTTOM - TOP))
    return f"M{_short(left)} {_short(place_y(low))}v-{up}h{across}v{up}z"


def draw_line(places: Sequence[tuple[float, float]]) -> str:
    """Returns the path through these places; a single one is a dot."""
    return "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}h0" for at, (x, y) in enumerate(places))


def draw_dots(places: Sequence[tuple[float, float]]) -> str:
    return "".join(draw_line([place]) for place in places)


def draw_ring(place: tuple[float, float]) -> str:
    x, y = place
    return f"M{x - RING:.1f} {y:.1f}a{RING} {RING} 0 1 0 {2 * RING} 0a{RING} {RING} 0 1 0 -{2 * RING} 0"


def draw_steps(places: Sequence[tuple[float, float]]) -> str:
    """Returns the path that holds each height until the next place; a single one is a dot."""
    if not places:
        return ""
    return f"M{places[0][0]:.1f} {places[0][1]:.1f}h0" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])


def mark_values(across: ValueAxis) -> tuple[tuple[float, str], ...]:
    """Returns the marks of an axis of values along the bottom."""
    return tuple((round(place_x(across.place(tick)), 1), across.label(tick)) for tick in across.ticks)


def make_drawing(
    name: str, title: str, unit: str, sentence: str, axis: ValueAxis, marks: tuple[tuple[float, str], ...],
    paths: Sequence[tuple[str, str]], legend: Sequence[LegendLine],
) -> ChartDrawing:  # fmt: skip
    """Returns a chart whose bottom has these marks; empty paths are left out."""
    return ChartDrawing(
        id=name, title=title, unit=unit, note="", sentence=sentence, is_empty=False, is_stacked=False,
        value_ticks=tuple((round(place_y(axis.place(tick)), 1), axis.label(tick)) for tick in axis.ticks),
        time_ticks=marks, paths=tuple(path for path in paths if path[1]), legend=tuple(legend),
    )  # fmt: skip
