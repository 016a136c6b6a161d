"""A gateway limits the requests of a service, whichever copy they go to."""

from __future__ import annotations

from simulation.run import simulated
from tests.simulation.worlds import CALM_TICK_SECONDS, small

OPEN = 60  # requests at once that eight copies have, at most, at the rates below


def test_no_request_is_turned_away_while_the_service_has_fewer_than_its_gateway_admits(database_url: str) -> None:
    with simulated(database_url, small(gpus=12, rates=(2000.0, 150.0, 100.0)), {}, seed=1) as simulation:
        fleet = simulation.fleet
        simulation.advance(180, CALM_TICK_SECONDS)
        assert fleet.ready("shop/a") >= 6
        simulation.gateway.away = True  # so that the limit stays
        fleet.most_open = {"shop/a": 2 * OPEN}
        before = fleet.services["shop/a"].turned_away
        for _ in range(40):
            simulation.advance(0.5, 0.5)
            assert sum(copy.waiting + copy.running for copy in fleet.serving()["shop/a"]) <= OPEN
        assert fleet.services["shop/a"].turned_away == before
        fleet.most_open = {"shop/a": OPEN // 4}
        simulation.advance(20, 0.5)
        assert fleet.services["shop/a"].turned_away > before
