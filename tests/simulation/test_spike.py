"""Four times the load within half a minute: served from the fleet's spare room, which is given back afterwards."""

from __future__ import annotations

import pytest

from simulation.fleet.history import count_attained_shares
from simulation.run import open_simulation
from simulation.shapes import spike, steady
from tests.simulation.worlds import all_noisy, small
from tests.support.soak import scaled

BEGINS, ENDS = 400.0, 1030.0  # ramp 30 s, hold 10 min
COOL_DOWN = 600.0  # of the forecast: a peak counts for so long
CALM_TICK = 5.0
GIVEN_BACK = scaled(10, 1)  # seeds that are followed down, too


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(10, 1)))
def test_a_spike_is_served_and_no_other_service_pays_for_it(database_url: str, seed: int) -> None:
    shapes = all_noisy({"shop/a": spike(BEGINS), "shop/b": steady, "shop/c": steady}, 0.02, seed)
    with open_simulation(database_url, small(gpus=12, pricing="gpu"), shapes, seed=seed) as simulation:
        fleet, history = simulation.fleet, simulation.history
        simulation.advance(BEGINS, CALM_TICK)
        usual, before = fleet.ready("shop/a"), history.mark(fleet)
        enough_at, last = 0.0, before
        for _ in range(12):
            simulation.advance(10)
            mark = history.mark(fleet)
            if count_attained_shares(last, mark)["shop/a"] < 0.98:
                enough_at = mark.at
            last = mark
        simulation.advance(ENDS - simulation.clock.seconds, CALM_TICK)
        spiked = count_attained_shares(before, history.mark(fleet))
        assert spiked["shop/a"] >= 0.96
        assert min(spiked["shop/b"], spiked["shop/c"]) >= 0.98
        assert enough_at - BEGINS <= 60
        assert fleet.ready("shop/a") > usual
        if seed >= GIVEN_BACK:
            return
        after = history.mark(fleet)
        simulation.advance(2 * COOL_DOWN, CALM_TICK)
        assert fleet.ready("shop/a") == usual
        assert min(count_attained_shares(after, history.mark(fleet)).values()) >= 0.98
