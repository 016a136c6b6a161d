"""A plan whose rollout stopped is complete once the search wants nothing but what runs; until then it stays stopped."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from app.control.domain.failures import read_failures
from app.manifests.model import Key, Kind
from app.store.plans import plans
from simulation.run import Simulation, open_simulation
from tests.simulation.worlds import CALM_TICK_SECONDS, small, withdraw

pytestmark = pytest.mark.slow

SETTLED_SECONDS = 80.0
STOPPED = """
    UPDATE plan SET state = 'stopped', rollout = rollout
        || jsonb_build_object('failures', jsonb_build_array(
            jsonb_build_object('owner', 'shop/a', 'place', NULL, 'at', extract(epoch FROM moment()))))
    WHERE state = 'done'
"""
COMPLETED = "SELECT name FROM event WHERE reason = 'rollout_done' AND message LIKE 'nothing that%'"


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


def stop(simulation: Simulation) -> int:
    """Lets the fleet settle, and stores its plan as one that stopped because a step of shop/a failed."""
    simulation.advance(SETTLED_SECONDS, CALM_TICK_SECONDS)
    simulation.database.write(lambda c: c.execute(text(STOPPED)))
    ((generation, state),) = rows(simulation, "SELECT generation, state FROM plan ORDER BY generation DESC LIMIT 1")
    assert state == "stopped"
    return int(generation)


def resting(simulation: Simulation) -> list[str]:
    plan = simulation.database.read(plans.read_plan_in_force)
    return [failure.owner for failure in read_failures(plan.progress)] if plan else []


def test_a_stopped_plan_is_complete_once_nothing_else_is_wanted(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        generation = stop(simulation)
        given = rows(simulation, "SELECT node, version FROM assignment ORDER BY node")
        simulation.advance(65, CALM_TICK_SECONDS)
        assert rows(simulation, f"SELECT state, decided_by, message FROM plan WHERE generation >= {generation}") == [
            ("done", "planner", "nothing that its rollout left out is needed any more")
        ]
        assert rows(simulation, COMPLETED) == [(f"p{generation}",)]
        assert rows(simulation, "SELECT node, version FROM assignment ORDER BY node") == given
        assert resting(simulation) == ["shop/a"], "the failed step still counts when it fails again"


def test_a_plan_stays_stopped_while_a_service_whose_step_failed_has_yet_to_change(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        generation = stop(simulation)
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "a"))
        simulation.advance(35)
        (last,) = rows(simulation, "SELECT reason FROM cycle ORDER BY at DESC LIMIT 1")
        assert last.reason == "step_failed_lately"
        assert rows(simulation, f"SELECT state FROM plan WHERE generation >= {generation}") == [("stopped",)]
        simulation.advance(600, CALM_TICK_SECONDS)
        ((after,),) = rows(simulation, f"SELECT state FROM plan WHERE generation > {generation}")
        assert after == "done"


def test_a_plan_stays_stopped_while_load_is_unserved(database_url: str) -> None:
    load = [1.0]
    with open_simulation(database_url, small(gpus=2), {"shop/a": lambda seconds: load[-1]}) as simulation:
        simulation.advance(SETTLED_SECONDS, CALM_TICK_SECONDS)
        load.append(40.0)
        simulation.advance(300, CALM_TICK_SECONDS)
        generation = stop(simulation)
        simulation.advance(65, CALM_TICK_SECONDS)
        ((state,),) = rows(simulation, f"SELECT state FROM plan WHERE generation >= {generation}")
        assert state == "stopped"
        assert rows(simulation, COMPLETED) == []
