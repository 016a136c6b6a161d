"""A gateway limits the requests of a service, whichever copy they go to."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.run import open_simulation
from simulation.serving.admission import NO_LIMIT
from simulation.serving.batches import assign_arrivals
from simulation.shapes import spike
from tests.simulation.worlds import CALM_TICK_SECONDS, small

OPEN = 60  # requests at once that wait at eight copies, at most, at the rates below; as many are in batches


@pytest.mark.slow
def test_no_request_is_turned_away_while_the_service_has_fewer_than_its_gateway_admits(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=12, rates=(2000.0, 150.0, 100.0)), {}, seed=1) as simulation:
        fleet = simulation.fleet
        simulation.advance(180, CALM_TICK_SECONDS)
        assert fleet.ready("shop/a") >= 6
        simulation.gateway.away = True  # so that the limit stays
        fleet.most_open = {"shop/a": 2 * OPEN}
        before = fleet.services["shop/a"].turned_away
        for _ in range(40):
            simulation.advance(0.5, 0.5)
            copies = fleet.serving()["shop/a"]
            assert sum(copy.waiting for copy in copies) <= OPEN
            assert sum(copy.waiting + copy.running for copy in copies) < 2 * OPEN
        assert fleet.services["shop/a"].turned_away == before
        fleet.most_open = {"shop/a": OPEN // 4}
        simulation.advance(20, 0.5)
        assert fleet.services["shop/a"].turned_away > before


@pytest.mark.slow
def test_in_an_overload_no_copy_gets_more_than_it_answers_in_time(database_url: str) -> None:
    """Four times the load of a fleet without spare GPUs: what is admitted is in time, and copies have enough to do."""
    shapes = {"shop/a": spike(300.0, times=4.0, hold_seconds=10_000.0)}
    with open_simulation(database_url, small(gpus=4, rates=(600.0, 150.0, 100.0)), shapes, seed=2) as simulation:
        fleet = simulation.fleet
        simulation.advance(420, CALM_TICK_SECONDS)
        before, excess = fleet.services["shop/a"].copied(), list[int]()
        for _ in range(120):
            simulation.advance(0.5, 0.5)
            most = fleet.most_by_copy
            excess += [copy.waiting + copy.running - most[copy.id] for copy in fleet.serving()["shop/a"]]
        assert max(excess) <= 8, "a batch, whose time varies by a percent"
        after = fleet.services["shop/a"]
        turned_away, answered = after.turned_away - before.turned_away, after.answered - before.answered
        assert turned_away > 0
        assert after.within - before.within >= 0.99 * answered
        assert after.errors - before.errors == turned_away, "nothing else is lost"


def test_arrivals_go_to_the_next_copy_with_room_or_to_none() -> None:
    """Two copies with batches of two in a second, three open at most; one has two in its batch until 0.5."""
    arrivals = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.6])
    found = assign_arrivals(
        arrivals, np.zeros(6, dtype=np.int64), np.zeros(0), np.zeros(2, dtype=np.int64), np.array([2, 0]),
        np.array([0.5, 0.0]), np.array([2, 2]), np.ones(2), np.zeros(2), np.array([3, 3]), NO_LIMIT,
    )  # fmt: skip
    assert found.tolist() == [0, 1, 1, 1, -1, 0]


def test_without_limits_of_copies_the_service_has_one() -> None:
    found = assign_arrivals(
        np.array([0.0, 0.1, 0.2]), np.zeros(3, dtype=np.int64), np.zeros(0), np.zeros(2, dtype=np.int64),
        np.zeros(2, dtype=np.int64), np.zeros(2), np.array([4, 4]), np.ones(2), np.zeros(2),
        np.zeros(2, dtype=np.int64), 2,
    )  # fmt: skip
    assert found.tolist() == [0, 0, -1]
