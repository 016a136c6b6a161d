"""What may be asked of reports, and how what may not is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.problem import HttpProblem
from app.reports.query import ReportSpan, parse_query
from app.store.money.report_queries import ReportQuery

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def ask(name: str = "cost", by: str = "", begins: str = "", ends: str = "", zone: str = "UTC") -> ReportQuery:
    return parse_query(name, by, ReportSpan(begins, ends, zone, NOW), "", 100)


def test_without_a_time_it_is_the_month_so_far() -> None:
    found = ask()
    assert (found.begins, found.ends) == (datetime(2026, 11, 1, tzinfo=UTC), NOW)
    assert found.by == ("tenant", "service", "job", "kind")


def test_dates_are_midnights_of_the_zone() -> None:
    found = ask(by="service,day", begins="2026-03-28", ends="2026-03-30", zone="Europe/Berlin")
    assert found.begins == datetime(2026, 3, 27, 23, tzinfo=UTC)
    assert found.ends == datetime(2026, 3, 29, 22, tzinfo=UTC)  # summer time has begun
    assert (found.by, found.grain) == (("tenant", "service", "kind"), "day")


def test_the_month_that_ends_at_midnight_began_a_month_before() -> None:
    assert ask(ends="2026-11-01").begins == datetime(2026, 10, 1, tzinfo=UTC)


def test_alternatives_are_never_summed_over() -> None:
    assert "baseline" in ask("savings", by="day").by


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"by": "servise"}, "did you mean service?"),
        ({"by": "day,hour"}, "one of hour, day, month"),
        ({"by": "service,service"}, "name each dimension once"),
        ({"begins": "yesterday"}, "allowed: a date like 2026-11-01"),
        ({"begins": "2026-11-20", "ends": "2026-11-19"}, "is not before"),
        ({"begins": "0001-01-01", "zone": "Asia/Tokyo"}, "is not a moment"),
        ({"ends": "0001-01-01"}, "1970-02-01 or later"),
        ({"begins": "1990-01-01"}, "1100 days at most"),
        ({"zone": "../../etc/passwd"}, "is not a time zone"),
        ({"zone": "Europe"}, "is not a time zone"),
        ({"zone": "localtime"}, "is not a time zone"),
        ({"by": "hour", "begins": "2020-01-01"}, "62 days at most"),
        ({"name": "costs"}, "there is no report 'costs'"),
    ],
)
def test_what_cannot_be_answered_is_named_with_what_can(given: dict[str, str], said: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        ask(**given)
    assert said in refused.value.detail
