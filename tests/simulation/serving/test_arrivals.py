"""Requests whose gaps vary: the rate and the variation that were asked for, and what plans make of the bursts."""

from __future__ import annotations

import numpy as np
import pytest

from agents.gateway.bursts import BurstMeter
from simulation.fleet.gateway import Gateway
from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.serving.arrivals import VaryingGaps
from simulation.serving.batches import Floats
from tests.simulation.worlds import CALM_TICK_SECONDS, small
from tests.support.postgres import DatabaseServer

SLO_MS = 120.0
SETTLED_SECONDS = 300.0


class GatewayWithoutWindows(Gateway):
    """A gateway that measures no bursts, as the contract allows."""

    def count(self) -> None:
        pass


def arrivals(gap_cv: float, seconds: float = 2000.0, tick_seconds: float = 2.0, rate: float = 200.0) -> Floats:
    gaps = VaryingGaps(gap_cv, 5, "shop/a")
    begins = np.arange(0.0, seconds, tick_seconds)
    return np.concatenate([gaps.take(begin, begin + tick_seconds, rate * tick_seconds) for begin in begins])


@pytest.mark.slow
@pytest.mark.parametrize("gap_cv", [0.3, 2.0, 4.0])
def test_gaps_have_the_mean_and_the_variation_that_were_asked_for(gap_cv: float) -> None:
    times = arrivals(gap_cv)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(400_000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(gap_cv, rel=0.02)
    meter = BurstMeter(SLO_MS)
    for at in times:
        meter.arrived(float(at), float(at))
    longest = meter.totals()[-1]
    assert longest.spread / longest.means == pytest.approx(gap_cv**2, rel=0.15)


def test_the_length_of_a_tick_changes_no_arrival() -> None:
    np.testing.assert_allclose(arrivals(4.0, 60.0, 1.0), arrivals(4.0, 60.0, 5.0))


def test_a_load_without_requests_draws_none_and_goes_on_where_it_was() -> None:
    gaps, calm = VaryingGaps(4.0, 5, "shop/a"), VaryingGaps(4.0, 5, "shop/a")
    first = gaps.take(0.0, 10.0, 50.0)
    assert not len(gaps.take(10.0, 20.0, 0.0))
    np.testing.assert_allclose(np.concatenate([first, gaps.take(20.0, 30.0, 50.0) - 10.0]), calm.take(0.0, 20.0, 100.0))


@pytest.mark.slow
def test_what_a_tick_counts_is_what_single_requests_count(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=2, rates=(200.0,)), seed=3) as simulation:
        simulation.fleet.arrivals.gap_cv = 3.0
        single = BurstMeter(SLO_MS)
        for _ in simulation.seconds(120, CALM_TICK_SECONDS):
            for at in np.sort(np.concatenate(simulation.fleet.arrivals.latest["shop/a"])):
                single.arrived(float(at), float(at))
        (meter,) = [meter for _, meter in simulation.gateway.meters.values()]
        assert meter.totals() == single.totals() != ()
        simulation.gateway.restart()
        assert not simulation.gateway.meters


def attained(postgres: DatabaseServer, gap_cv: float, *, counts_windows: bool) -> tuple[float, float, Simulation]:
    """Returns the share within the SLO once plans are settled, the variation that is planned for, and the run."""
    url = postgres.create()
    try:
        with open_simulation(url, small(gpus=4, rates=(200.0,)), seed=1) as simulation:
            if not counts_windows:
                simulation.gateway = GatewayWithoutWindows(simulation.fleet, simulation.database)
            simulation.fleet.arrivals.gap_cv = gap_cv
            simulation.advance(SETTLED_SECONDS, CALM_TICK_SECONDS)
            mark = simulation.history.mark(simulation.fleet)
            simulation.advance(300, CALM_TICK_SECONDS)
            shares = count_attained_shares(mark, simulation.history.mark(simulation.fleet))
            assert simulation.last and simulation.last.question
            variation = simulation.last.question.problem.services["shop/a"].variation
            return shares["shop/a"], variation, simulation
    finally:
        postgres.drop(url)


@pytest.mark.slow
def test_bursts_that_gateways_measure_are_planned_for_and_the_promise_holds(postgres: DatabaseServer) -> None:
    """98 % are promised. Long run dispersion of 16 at 24 requests a window: a variation of about (16 - 1) / 24."""
    share, variation, _ = attained(postgres, 4.0, counts_windows=True)
    share_without, variation_without, _ = attained(postgres, 4.0, counts_windows=False)
    assert 0.5 < variation < 2.0
    assert share >= 0.99
    assert (variation_without, share_without < 0.97) == (0.0, True)


@pytest.mark.slow
def test_windows_of_poisson_arrivals_change_nothing(postgres: DatabaseServer) -> None:
    share, variation, first = attained(postgres, 1.0, counts_windows=True)
    share_without, _, second = attained(postgres, 1.0, counts_windows=False)
    assert (share, variation) == (share_without, 0.0)
    assert first.history.changes == second.history.changes
