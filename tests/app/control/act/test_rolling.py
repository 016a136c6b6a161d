"""A rollout over a simulated fleet and a real Postgres, of which one service's copies never start."""

from __future__ import annotations

from math import inf
from typing import Any

from sqlalchemy import text

from app.control.observe.observer import FAILURES_HOURS
from app.store.plans import plans
from simulation.run import Simulation, simulated
from tests.simulation.worlds import small


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


def delay_starts(simulation: Simulation, service: str) -> None:
    """Keeps copies of the service that start now from ever getting ready."""
    for node in simulation.fleet.nodes.values():
        for copy in node.alive():
            if copy.wanted.service == service:
                node._ready_at[copy.id] = inf


def test_a_late_copy_starts_once_more_then_its_service_rests_and_the_others_serve(database_url: str) -> None:
    failures = []
    with simulated(database_url, small(gpus=4)) as simulation:
        for _ in simulation.seconds(360, 3.0):
            delay_starts(simulation, "a")
            failures = simulation.database.read(lambda c: plans.recent_failures(c, FAILURES_HOURS))
            if failures:
                break
        assert simulation.fleet.ready("shop/b") >= 1 and simulation.fleet.ready("shop/c") >= 1
        assert [owner for owner, _, _ in failures] == ["shop/a"]
        answers = rows(simulation, "SELECT reason, message FROM event WHERE reason LIKE 'step_%' ORDER BY at")
        assert {reason for reason, _ in answers} == {"step_retried", "step_timed_out"}
        assert all("it is still starting after" in message for _, message in answers)
        simulation.advance(150, 3.0)  # it rested, and its copies start again
        assert simulation.fleet.ready("shop/a") >= 1
        assert rows(simulation, "SELECT state FROM plan ORDER BY generation DESC LIMIT 1") == [("done",)]
