"""The definition of a view: its columns with their comments, and its source."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its expression, and the comment that `\\d+` shows."""

    name: str
    expression: str
    comment: str


@dataclass(frozen=True, slots=True)
class View:
    """A view of the schema `report`. `source` is all that follows the columns: FROM, WHERE, GROUP BY."""

    name: str
    comment: str
    columns: Sequence[Column]
    source: str

    @property
    def statement(self) -> str:
        """Returns the statement for the view and its comments; it reads rows with the caller's rights and policies."""
        columns = ",\n    ".join(f"{column.expression} AS {column.name}" for column in self.columns)
        made = f"CREATE VIEW report.{self.name} WITH (security_invoker = true) AS SELECT\n    {columns}\n{self.source}"
        comments = [f"COMMENT ON VIEW report.{self.name} IS {_quoted(self.comment)}"]
        comments += [
            f"COMMENT ON COLUMN report.{self.name}.{column.name} IS {_quoted(column.comment)}"
            for column in self.columns
        ]
        return ";\n".join([made, *comments])


@dataclass(frozen=True, slots=True)
class Grain:
    """The period of a view's rows: an hour, a day or a month."""

    suffix: str  # of the view's name
    period: str  # the column's name
    adjective: str
    comment: str
    calendar: str  # the view that its periods come from; none for hours

    def of_hours(self, table: str) -> str:
        """Returns FROM `table`, whose rows are of UTC hours; an hour counts in the period in which it begins."""
        if not self.calendar:
            return f"{table} AS fact"
        return within(self.calendar, table, "hour", "starts_at", "stops_at")

    @property
    def of_fact(self) -> str:
        """Returns the expression for the period of such a row."""
        return f"calendar.{self.period}" if self.calendar else "fact.hour"

    def column(self, expression: str = "") -> Column:
        return Column(self.period, expression or self.period, self.comment)


def within(calendar: str, table: str, at: str, begins: str, ends: str) -> str:
    """Returns FROM the rows of `table` between two columns of each period.

    OFFSET 0 makes Postgres look them up period by period: it cannot know how short periods are, and would otherwise
    read the whole table.
    """
    return (
        f"{calendar} AS calendar CROSS JOIN LATERAL (\n"
        f"    SELECT * FROM {table} WHERE {at} >= calendar.{begins} AND {at} < calendar.{ends} OFFSET 0) AS fact"
    )


IN_ZONE = "of the session's time zone (SET TimeZone = 'Europe/Berlin')"
HOUR = Grain("", "hour", "hourly", "When the hour began. Hours are those of UTC.", "")
DAY = Grain("_daily", "day", "daily", f"The day {IN_ZONE}.", "report.days")
MONTH = Grain("_monthly", "month", "monthly", f"The first day of the month {IN_ZONE}.", "report.months")
GRAINS = (HOUR, DAY, MONTH)


def at_each_grain(make: Callable[[Grain], View]) -> list[View]:
    """Returns the same view by hour, day and month."""
    return [make(grain) for grain in GRAINS]


def grouped(sums: Sequence[Column], keys: Sequence[Column], source: str) -> tuple[list[Column], str]:
    """Returns the columns and source of a view that sums over `keys`."""
    return [*keys, *sums], f"{source}\nGROUP BY {', '.join(str(place + 1) for place in range(len(keys)))}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
