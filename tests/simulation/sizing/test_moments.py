"""Which moments of a trace a rental must carry."""

from __future__ import annotations

import pytest

from simulation.sizing.moments import LEAST_RATE, highest_moments, trace_seconds
from tests.simulation.sizing.worlds import curves

WORTH = {"shop/a": 1.0, "shop/b": 1.0}
DECLARED = {"shop/a": 10.0, "shop/b": 20.0}


def test_every_second_of_the_trace_is_below_some_moment() -> None:
    found = curves("0,shop/a,100\n50,shop/a,300\n300,shop/a,10\n0,shop/b,10\n400,shop/b,200\n")
    moments = highest_moments(found, DECLARED, WORTH)
    for second in range(401):
        rates = {name: curve.at(second) for name, curve in found.items()}
        assert any(all(moment.rates[name] >= rate for name, rate in rates.items()) for moment in moments), second


def test_no_moment_is_below_another_and_the_most_expensive_is_first() -> None:
    moments = highest_moments(curves("0,shop/a,100\n600,shop/a,10\n0,shop/b,10\n600,shop/b,500\n"), DECLARED, WORTH)
    assert len(moments) == 10
    assert moments[0].rates["shop/b"] == 500
    for one in moments:
        assert not any(
            other is not one and all(other.rates[name] >= rate for name, rate in one.rates.items()) for other in moments
        )


def test_peaks_that_do_not_coincide_are_two_moments_and_not_their_sum() -> None:
    rows = "0,shop/a,100\n60,shop/a,100\n90,shop/a,5\n300,shop/a,5\n0,shop/b,5\n150,shop/b,5\n200,shop/b,90\n"
    moments = highest_moments(curves(rows), DECLARED, WORTH)
    assert [dict(moment.rates) for moment in moments][:2] == [
        {"shop/a": 100.0, "shop/b": 5.0}, {"shop/a": 5.0, "shop/b": 90.0},
    ]  # fmt: skip


def test_a_service_without_rows_keeps_its_declared_rate_and_silence_is_almost_none() -> None:
    (moment,) = highest_moments(curves("0,shop/a,0\n"), DECLARED, WORTH)
    assert dict(moment.rates) == {"shop/a": LEAST_RATE, "shop/b": 20.0}
    assert moment.times(2.0)["shop/b"] == 40.0


def test_a_long_trace_has_longer_spans() -> None:
    week = "".join(f"{600 * number},shop/a,{number % 7 + 1}\n" for number in range(1009))
    found = curves(week)
    assert trace_seconds(found) == 604_800
    (moment,) = highest_moments(found, DECLARED, WORTH)
    assert moment.rates["shop/a"] == pytest.approx(7.0)
