"""A steady load changes nothing: 1,000 cycles of it in the long form."""

from __future__ import annotations

import pytest

from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.shapes import steady
from tests.simulation.worlds import all_noisy, small
from tests.support.soak import SOAK, scaled

CYCLES = scaled(1000, 100)
QUIET_CYCLES = 10
TICK = 1.0 if SOAK else 5.0
MOST_CHANGED = 30  # in the long form
SERVICES = ("shop/a", "shop/b", "shop/c")


def settled(simulation: Simulation) -> float:
    """After ten quiet cycles; the moment."""
    simulation.advance(30 * (QUIET_CYCLES + 1), TICK)
    return simulation.clock.seconds


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.02, 0.10])
def test_a_steady_load_changes_nothing(database_url: str, noise: float) -> None:
    shapes = all_noisy(dict.fromkeys(SERVICES, steady), noise, seed=int(noise * 100))
    with open_simulation(database_url, small(), shapes) as simulation:
        began = settled(simulation)
        mark = simulation.history.mark(simulation.fleet)
        simulation.advance(30 * CYCLES, TICK)
        changed = simulation.history.since(began)
        # In eight hours of 10 % of noise a deviation now and then is larger than chance explains.
        assert len(changed) <= (MOST_CHANGED if SOAK and noise > 0.02 else 0)
        assert min(count_attained_shares(mark, simulation.history.mark(simulation.fleet)).values()) >= 0.98
