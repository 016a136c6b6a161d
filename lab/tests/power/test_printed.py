"""Algorithm 1 as printed, line by line: as a baseline it must be what the paper printed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from agents.contract.assignments import Frame
from agents.policy.power import GpuPeriod, InstancePeriod, PowerMove, PowerSettings, PowerState
from agents.policy.power.knobs import Knob
from lab.power import printed

CLOCKS = (300, 600, 900, 1200)
ONE = InstancePeriod("a", batch=4, frame=Frame(4, 1, 32), latency_ms=95.0, slo_ms=100.0)
SEEN = GpuPeriod(
    0, datetime(2026, 5, 1, tzinfo=UTC), peak_w=100.0, cap_w=300.0, clock_mhz=600, frame=Frame(900, 300, 1200),
    clocks_mhz=CLOCKS, instances=(ONE,),
)  # fmt: skip
MIDWAY = PowerState(Knob(600, 900, 300, 1200), {"a": Knob(4, 4, 1, 32)})


def step(peak: float, ratio: float, state: PowerState = MIDWAY) -> PowerMove:
    return printed.step(
        state, replace(SEEN, peak_w=peak, instances=(replace(ONE, latency_ms=100 * ratio),)), PowerSettings()
    )


def test_line_1_it_starts_at_the_planned_values() -> None:
    move = step(290, 0.95, PowerState())
    assert (move.clock_mhz, move.batches) == (900, {"a": 4})


def test_lines_4_to_8_with_power_to_spare_it_raises_the_clock_in_the_band_and_the_batch_below() -> None:
    assert (step(100, 0.95).clock_mhz, step(100, 0.95).batches) == (900, {"a": 4})
    assert (step(100, 0.5).clock_mhz, step(100, 0.5).batches) == (600, {"a": 8})


def test_line_9_between_alpha_and_the_cap_nothing_moves() -> None:
    assert (step(290, 0.5).clock_mhz, step(290, 0.5).batches) == (600, {"a": 4})


def test_lines_11_to_15_over_the_cap_it_takes_batch_in_the_band_and_clock_below() -> None:
    assert (step(310, 0.95).clock_mhz, step(310, 0.95).batches) == (600, {"a": 2})
    assert (step(310, 0.5).clock_mhz, step(310, 0.5).batches) == (300, {"a": 4})


def test_it_has_no_branch_for_latency_above_its_limit() -> None:
    for peak in (100, 290, 310):
        assert (step(peak, 1.5).clock_mhz, step(peak, 1.5).batches) == (600, {"a": 4})


def test_line_18_after_three_broken_periods_it_asks_for_other_partitions() -> None:
    state, requested = MIDWAY, []
    for _ in range(4):
        move = step(100, 1.5, state)
        state = move.state
        requested.append(move.repartition)
    assert requested == [False, False, True, True]
