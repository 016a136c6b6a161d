"""A minute is reported from its beginning, so that every report of it includes the earlier ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from agents.keeper.copies import NodeCopy, Stage
from agents.node.report_minute import CopyTotals, ReportMinute, add_counts, percentile_ms, subtract_counters
from agents.runtime import Running
from agents.seams.device import GpuReading
from agents.seams.traffic import Counters, Served
from tests.support.nodes import served

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def copy(name: str, number: int = 1) -> NodeCopy:
    return NodeCopy(f"{name}.1.{number}", served(name), "GPU-a", Stage.READY, running=Running(name, number, 1, "boot"))


def totals_of(requests: int, busy: float | None = None, errors: int = 0) -> CopyTotals:
    counters = Counters(requests, errors, (requests,))
    return CopyTotals(counters, "gateway", Served(counters, busy_seconds=busy))


def test_readings_are_averaged_and_their_peak_is_kept() -> None:
    minute = ReportMinute(NOON, {})
    for watts, percent in ((100.0, 20.0), (300.0, 40.0)):
        minute.read("GPU-a", GpuReading(3.0, percent, watts, temperature_c=60.0, sm_clock_mhz=1380.0))
    sums = minute.gpu("GPU-a", 0, 7)
    assert (sums.power_mean_w, sums.power_peak_w, sums.utilization_percent) == (200, 300, 30)
    assert (sums.memory_used_gib, sums.temperature_c, sums.energy_counter_mj) == (3, 60, 7)


def test_a_reading_without_watts_takes_nothing_from_the_mean() -> None:
    minute = ReportMinute(NOON, {})
    minute.read("GPU-a", GpuReading(1.0, power_w=200.0))
    minute.read("GPU-a", GpuReading(1.0))
    assert minute.gpu("GPU-a", 0, 0).power_mean_w == 200


def test_a_device_that_was_never_read_is_unknown() -> None:
    assert ReportMinute(NOON, {}).gpu("GPU-a", 3, 0).health == "unknown"


def test_requests_count_from_what_the_copy_had_when_the_minute_began() -> None:
    minute = ReportMinute(NOON, {"a.1.1": totals_of(100, busy=5.0)})
    sums = minute.instances([copy("a")], {"GPU-a": 0}, {"a.1.1": totals_of(130, busy=9.0, errors=2)})["a"]
    assert (sums.requests, sums.errors, sums.busy_seconds, sums.latency_counts) == (30, 2, 4, (30,))
    assert sums.source == "gateway"


def test_a_later_report_includes_all_of_an_earlier_report() -> None:
    minute = ReportMinute(NOON, {})
    counts = [
        minute.instances([copy("a")], {"GPU-a": 0}, {"a.1.1": totals_of(total)})["a"].requests for total in (3, 8, 21)
    ]
    assert counts == [3, 8, 21]


def test_a_copy_that_came_within_the_minute_counts_from_nought() -> None:
    sums = ReportMinute(NOON, {}).instances([copy("a")], {"GPU-a": 0}, {"a.1.1": totals_of(12)})
    assert sums["a"].requests == 12


def test_two_copies_of_an_instance_are_added_up() -> None:
    minute = ReportMinute(NOON, {"a.1.1": totals_of(100)})
    totals = {"a.1.1": totals_of(110), "a.1.2": totals_of(5)}
    sums = minute.instances([copy("a"), copy("a", 2)], {"GPU-a": 0}, totals)["a"]
    assert (sums.requests, sums.latency_counts) == (15, (15,))


def test_a_restarted_counter_counts_from_zero() -> None:
    assert subtract_counters(Counters(3, 1, (2, 1)), Counters(100, 4, (60, 40))) == Counters(3, 1, (2, 1))


def test_what_was_counted_since_has_no_zeros_at_its_end() -> None:
    assert subtract_counters(Counters(9, 0, (4, 5, 7)), Counters(7, 0, (2, 5, 7))) == Counters(2, 0, (2,))


@pytest.mark.parametrize(("one", "other"), [((1, 2), (1, 1, 1)), ((1, 1, 1), (1, 2)), ((2, 3, 1), ())])
def test_histograms_of_different_lengths_are_added_up(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert add_counts(one, other) == (2, 3, 1)


def test_a_percentile_is_linear_within_its_bucket() -> None:
    assert percentile_ms((0, 10), 50, (1.0, 3.0)) == pytest.approx(2.0)
    assert percentile_ms((10, 0), 50, (1.0, 3.0)) == pytest.approx(0.5)


def test_a_percentile_beyond_the_last_edge_is_that_edge() -> None:
    counts = (0,) * len(LATENCY_EDGES_MS) + (5,)
    assert percentile_ms(counts, 98, LATENCY_EDGES_MS) == LATENCY_EDGES_MS[-1]


def test_nothing_served_has_no_percentile() -> None:
    assert percentile_ms((), 98, LATENCY_EDGES_MS) is None
    assert percentile_ms((0, 0), 98, LATENCY_EDGES_MS) is None


def test_batches_and_busy_time_are_those_of_the_minute_over_all_copies() -> None:
    before = {"a.1.1": CopyTotals(Counters(), "gateway", Served(Counters(), busy_seconds=5.0, batches=50.0))}
    now = {
        "a.1.1": CopyTotals(Counters(), "gateway", Served(Counters(), busy_seconds=7.0, batches=60.0)),
        "a.1.2": CopyTotals(Counters(), "gateway", Served(Counters(), busy_seconds=1.0, batches=5.0)),
    }
    sums = ReportMinute(NOON, before).instances([copy("a"), copy("a", 2)], {"GPU-a": 0}, now)["a"]
    assert (sums.batches, sums.busy_seconds) == (15, 3)
