"""If more than a third of the nodes falls silent at once, nothing moves for a while; then all of it is served again."""

from __future__ import annotations

import pytest

from app.control.rollout.failing.many_down import HELD_SECONDS, PAUSE_SECONDS, TURNS
from simulation.run import Simulation
from tests.app.control.test_failed_places import assigned_places, rows, settled, small_service
from tests.simulation.worlds import node

pytestmark = pytest.mark.slow

NAMES = "abcd"
TICK_SECONDS = 10.0
START_SECONDS = 120.0  # to notice, to plan and to start


def served(simulation: Simulation, away: set[str]) -> set[str]:
    """Returns the services that have a copy on a node that is there."""
    there = [other for name, other in simulation.fleet.nodes.items() if name not in away]
    return {copy.service for other in there for copy in other.alive() if copy.served}


def test_nodes_that_fall_silent_together_are_planned_around_after_a_while_and_all_is_served(database_url: str) -> None:
    documents = [node(f"node-{number}", 1) for number in range(9)]
    documents += [each for name in NAMES for each in small_service(name, isolation="dedicated")]
    with settled(database_url, *documents) as simulation:
        before = {name: assigned_places(simulation, name) for name in NAMES}
        away = {place[0] for places in before.values() for place in places}
        assert len(away) == 4
        simulation.post.silence(sorted(away))
        simulation.advance(HELD_SECONDS - 60, TICK_SECONDS)
        assert {name: assigned_places(simulation, name) for name in NAMES} == before
        messages = rows(simulation, "SELECT message FROM event WHERE reason = 'many_down'")
        assert [message.split(":")[0] for (message,) in messages] == [
            "4 of 9 nodes fell within a minute, and nothing moves"
        ]
        assert rows(simulation, "SELECT count(*) FROM event WHERE reason = 'node_lost'") == [(0,)]
        simulation.advance(60 + TURNS * PAUSE_SECONDS + START_SECONDS, TICK_SECONDS)
        assert served(simulation, away) == {f"shop/{name}" for name in NAMES}
        assert rows(simulation, "SELECT count(*) FROM event WHERE reason = 'node_lost'") == [(4,)]
