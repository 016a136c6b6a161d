"""Each case of the law's table, one period at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.contract.assignments import Frame
from agents.policy.power import GpuPeriod, InstancePeriod, PowerMove, PowerSettings, PowerState, step

CLOCKS = tuple(range(300, 1501, 100))
BEGAN = datetime(2026, 5, 1, tzinfo=UTC)
ONE = InstancePeriod("a", batch=8, frame=Frame(8, 1, 32), latency_ms=80.0, slo_ms=100.0, queue=0.0, busy=0.5)
CALM = GpuPeriod(
    0, BEGAN, peak_w=200.0, mean_w=190.0, cap_w=300.0, idle_w=50.0, clock_mhz=1000, frame=Frame(1000, 300, 1500),
    clocks_mhz=CLOCKS, instances=(ONE,),
)  # fmt: skip


def following(period: GpuPeriod, move: PowerMove) -> GpuPeriod:
    """The same period again, a second later, with the requested settings in force."""
    instances = tuple(
        replace(instance, batch=move.batches.get(instance.id, instance.batch)) for instance in period.instances
    )
    return replace(period, at=period.at + timedelta(seconds=1), clock_mhz=move.clock_mhz, instances=instances)


def after(
    periods: int, period: GpuPeriod, state: PowerState | None = None, tuned: PowerSettings | None = None
) -> PowerMove:
    """The same measurements over and over, no matter what is changed."""
    move = PowerMove(state or PowerState(), None, {})
    for _ in range(periods):
        move = step(move.state, period, tuned or PowerSettings())
        period = following(period, move)
    return move


def late(instance: InstancePeriod = ONE, by: float = 1.2) -> InstancePeriod:
    return replace(instance, latency_ms=by * instance.slo_ms)


# Both limits hold


def test_a_new_loop_puts_every_knob_where_the_plan_says() -> None:
    drifted = replace(CALM, clock_mhz=1400, instances=(replace(ONE, batch=2),))
    move = after(1, drifted)
    assert (move.clock_mhz, move.batches, move.excursions) == (1000, {"a": 8}, ())


def test_a_planned_clock_that_the_device_lacks_is_the_nearest_inside_the_frame() -> None:
    assert after(1, replace(CALM, frame=Frame(1049, 300, 1500))).clock_mhz == 1000
    assert after(1, replace(CALM, frame=Frame(1080, 300, 1090))).clock_mhz == 1000


@pytest.mark.parametrize("ratio", [0.1, 0.95, 1.0])
def test_nothing_moves_while_both_limits_hold(ratio: float) -> None:
    move = after(100, replace(CALM, peak_w=299.0, instances=(late(by=ratio),)))
    assert (move.clock_mhz, move.batches, move.excursions, move.repartition) == (1000, {"a": 8}, (), False)


# Over the cap


def test_over_the_cap_the_clock_goes_down_in_one_step_that_suffices() -> None:
    move = after(1, replace(CALM, peak_w=400.0))
    assert move.clock_mhz is not None
    # Even if power falls no faster than the clock, and all compute all of the time.
    assert 50 + (400 - 50) / 0.5 * move.clock_mhz / 1000 <= 300
    assert [
        (excursion.knob, excursion.planned, excursion.value, excursion.reason) for excursion in move.excursions
    ] == [("clockMhz", 1000, move.clock_mhz, "over_cap")]
    assert move.excursions[0].since == BEGAN


def test_behind_the_hardwares_own_limit_the_step_is_the_likely_one() -> None:
    barely = replace(CALM, peak_w=303.0)
    assert after(1, barely).clock_mhz == 400
    assert after(1, replace(barely, limited=True)).clock_mhz == 900


def test_where_a_step_did_not_suffice_the_next_aims_lower() -> None:
    over = replace(CALM, peak_w=310.0, instances=(replace(ONE, busy=1.0),))
    clocks = [after(periods, over).clock_mhz or 0 for periods in (1, 2, 3)]
    assert clocks == [900, 700, 400]  # for 0.95, 0.95 x 0.9 and 0.95 x 0.81 of the cap


def test_an_excursion_counts_from_when_the_knob_first_left_its_plan() -> None:
    over = replace(CALM, peak_w=310.0, instances=(replace(ONE, busy=1.0),))
    assert after(3, over).excursions[0].since == BEGAN


def test_a_step_from_a_clock_that_was_not_ours_does_not_go_below_the_plan_that_fits() -> None:
    free = replace(CALM, clock_mhz=None, running_mhz=1500.0, peak_w=310.0, instances=(replace(ONE, busy=1.0),))
    assert after(1, free).clock_mhz == 1000


def test_at_the_lowest_clock_batches_are_halved_down_to_their_frame() -> None:
    floor = replace(CALM, peak_w=400.0, frame=Frame(300, 300, 1500), clock_mhz=300)
    assert [after(periods, floor).batches["a"] for periods in (1, 2, 3, 9)] == [4, 2, 1, 1]


def test_a_clock_that_cannot_be_held_is_left_alone() -> None:
    for period in (replace(CALM, clocks_mhz=(), peak_w=400.0), replace(CALM, frame=None, peak_w=400.0)):
        move = after(1, period)
        assert (move.clock_mhz, move.batches) == (None, {"a": 4})


def test_where_the_hardware_slows_it_down_the_clock_goes_below_what_the_hardware_holds() -> None:
    move = after(2, replace(CALM, peak_w=299.0, running_mhz=850.0, slowed=True))
    assert move.clock_mhz is not None
    assert move.clock_mhz <= 850
    assert move.excursions[0].reason == "over_cap"


# Over the SLO


def test_one_late_period_moves_nothing() -> None:
    assert after(1, replace(CALM, instances=(late(),))).clock_mhz == 1000


def test_late_with_watts_to_spare_raises_the_clock_as_far_as_needed() -> None:
    move = after(3, replace(CALM, peak_w=100.0, instances=(late(by=1.1),)))
    assert move.clock_mhz == 1300  # 1000 x 1.1 / 0.9 = 1222
    assert move.excursions[0].reason == "over_slo"
    assert move.batches == {"a": 8}


def test_the_clock_rises_only_as_far_as_the_watts_surely_allow() -> None:
    move = after(3, replace(CALM, peak_w=200.0, instances=(late(by=3.0),)))
    assert move.clock_mhz == 1100  # (0.95 x 300 / 200) ** (1 / 3) = 1.125


def test_late_without_watts_a_smaller_batch_where_computing_takes_the_time() -> None:
    move = after(3, replace(CALM, peak_w=290.0, instances=(late(),)))
    assert (move.clock_mhz, move.batches) == (1000, {"a": 4})


def test_late_without_watts_nothing_helps_an_instance_whose_queue_grows() -> None:
    queued = replace(late(), queue=50.0, busy=1.0)
    assert after(3, replace(CALM, peak_w=290.0, instances=(queued,))).batches == {"a": 8}


def test_late_at_the_highest_clock_a_larger_batch_where_requests_queue() -> None:
    queued = replace(late(), queue=50.0, busy=1.0)
    top = replace(CALM, peak_w=150.0, frame=Frame(1500, 300, 1500), clock_mhz=1500, instances=(queued,))
    assert after(3, top).batches == {"a": 16}


def test_an_instance_that_served_nothing_or_has_no_slo_is_not_late() -> None:
    idle = replace(CALM, instances=(replace(ONE, latency_ms=None), replace(late(ONE), id="job", slo_ms=0.0)))
    assert after(10, idle).clock_mhz == 1000


# Both at once, and neither possible


def test_over_both_limits_the_cap_comes_first() -> None:
    move = after(3, replace(CALM, peak_w=400.0, instances=(late(by=2.0),)))
    assert (move.clock_mhz or 0) < 1000


def test_after_three_broken_periods_behind_the_first_a_repartition_is_asked_for() -> None:
    hopeless = replace(CALM, peak_w=400.0)
    assert [after(periods, hopeless).repartition for periods in (1, 2, 3, 4)] == [False, False, False, True]


def test_the_request_is_taken_back_once_both_limits_hold_for_a_while() -> None:
    requested = after(4, replace(CALM, peak_w=400.0)).state
    assert [after(periods, CALM, requested).repartition for periods in (1, 2, 3)] == [True, True, False]


# Back to the plan


def test_a_lowered_clock_returns_only_as_far_as_the_watts_surely_allow() -> None:
    down = after(1, replace(CALM, peak_w=400.0)).state
    assert down.clock
    held = replace(CALM, clock_mhz=down.clock.value, peak_w=0.95 * 300)
    assert after(50, held, down).clock_mhz == down.clock.value
    back = after(3, replace(held, peak_w=60.0), down)
    assert back.clock_mhz is not None
    assert down.clock.value < back.clock_mhz <= 1000


def test_a_raised_clock_returns_only_where_latency_stays_inside_the_band() -> None:
    up = after(3, replace(CALM, peak_w=100.0, instances=(late(by=1.1),))).state
    held = replace(CALM, clock_mhz=1300)
    assert after(50, replace(held, instances=(late(by=0.88),)), up).clock_mhz == 1300
    back = after(3, replace(held, instances=(late(by=0.3),)), up)
    assert (back.clock_mhz, back.excursions) == (1000, ())


def test_a_return_that_did_not_last_waits_twice_as_long_next_time() -> None:
    state, waits = after(1, replace(CALM, peak_w=400.0)).state, []
    for _ in range(4):
        assert state.clock
        waits.append(state.clock.wait)
        quiet = replace(CALM, clock_mhz=state.clock.value, peak_w=20.0)
        assert after(state.clock.wait - 1, quiet, state).clock_mhz == state.clock.value
        move = after(state.clock.wait, quiet, state)
        assert move.clock_mhz == 1000
        state = step(move.state, replace(CALM, peak_w=400.0), PowerSettings()).state
    assert waits == [3, 6, 12, 24]


def test_a_new_plan_puts_the_knob_where_it_says_and_ends_the_excursion() -> None:
    down = after(1, replace(CALM, peak_w=400.0)).state
    move = step(down, replace(CALM, frame=Frame(900, 300, 1500)), PowerSettings())
    assert (move.clock_mhz, move.excursions) == (900, ())


def test_an_instance_that_is_gone_is_forgotten() -> None:
    move = step(after(3, replace(CALM, instances=(late(),))).state, replace(CALM, instances=()), PowerSettings())
    assert (move.batches, dict(move.state.late)) == ({}, {})


# For any measurement

FLOATS = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS, FLOATS, st.booleans()), min_size=1, max_size=20))
def test_no_measurement_moves_a_knob_out_of_its_frame(periods: list[tuple[float | None, ...]]) -> None:
    state = PowerState()
    for peak, latency, queue, busy, slowed in periods:
        instance = replace(ONE, latency_ms=latency, queue=queue, busy=busy, frame=Frame(8, 2, 16), batch_mean=queue)
        period = replace(
            CALM,
            peak_w=peak,
            frame=Frame(1000, 600, 1200),
            running_mhz=latency,
            slowed=bool(slowed),
            instances=(instance,),
        )
        move = step(state, period, PowerSettings())
        assert move.clock_mhz in CLOCKS
        assert 600 <= (move.clock_mhz or 0) <= 1200
        assert 2 <= move.batches["a"] <= 16
        state = move.state


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.1, float("nan")])
def test_a_band_outside_its_limits_is_refused_by_name(wrong: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        PowerSettings(alpha=wrong)
    with pytest.raises(ValueError, match="beta"):
        PowerSettings(beta=wrong)
