"""Four times the load within half a minute: served from what the fleet has room for, and given back afterwards."""

from __future__ import annotations

from simulation.history import attained
from simulation.run import simulated
from simulation.shapes import all_noisy, spike, steady
from tests.simulation.worlds import small

BEGINS, ENDS = 400.0, 1030.0  # ramp 30 s, hold 10 min
COOL_DOWN = 600.0  # of the forecast: a peak counts for so long
CALM_TICK = 5.0


def test_a_spike_is_served_and_nobody_else_pays_for_it(database_url: str) -> None:
    shapes = all_noisy({"shop/a": spike(BEGINS), "shop/b": steady, "shop/c": steady}, 0.02)
    with simulated(database_url, small(gpus=12), shapes) as simulation:
        fleet, history = simulation.fleet, simulation.history
        simulation.go_on(BEGINS, CALM_TICK)
        usual, before = fleet.ready("shop/a"), history.mark(fleet)
        enough_at, last = 0.0, before
        for _ in range(12):
            simulation.go_on(10)
            mark = history.mark(fleet)
            if attained(last, mark)["shop/a"] < 0.98:
                enough_at = mark.at
            last = mark
        simulation.go_on(ENDS - simulation.clock.seconds, CALM_TICK)
        spiked = attained(before, history.mark(fleet))
        assert spiked["shop/a"] >= 0.9
        assert min(spiked["shop/b"], spiked["shop/c"]) >= 0.98
        assert enough_at - BEGINS <= 90
        assert fleet.ready("shop/a") > usual
        after = history.mark(fleet)
        simulation.go_on(2 * COOL_DOWN, CALM_TICK)
        assert fleet.ready("shop/a") == usual
        assert min(attained(after, history.mark(fleet)).values()) >= 0.98
