"""While a person has paused a rollout, no plan takes its place: not for load, and not for a lost node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from app.control.domain.decision import PlanState
from app.store.plans import plan_reads
from app.store.plans.plans import Overtaken
from simulation.run import Simulation, open_simulation
from tests.simulation.worlds import CALM_TICK_SECONDS, small

pytestmark = pytest.mark.slow

PERSON = "ops"


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


def change(simulation: Simulation, generation: int, before: PlanState, after: PlanState) -> None:
    simulation.database.write(
        lambda c: plan_reads.change_state(c, generation, [before], after, PERSON, None)  # as the route does
    )


def rolling(simulation: Simulation) -> int:
    """Runs until a rollout is under way, pauses it, and returns its plan."""
    for _ in simulation.seconds(60):
        for (generation,) in rows(simulation, "SELECT generation FROM plan WHERE state = 'rolling'"):
            change(simulation, generation, PlanState.ROLLING, PlanState.PAUSED)
            return int(generation)
    raise AssertionError("no rollout began")


def test_a_paused_plan_stays_in_force_while_load_rises_and_a_node_is_lost(database_url: str) -> None:
    shapes = {"shop/a": lambda seconds: 4.0 if seconds > 40 else 1.0}
    with open_simulation(database_url, small(gpus=6), shapes) as simulation:
        generation = rolling(simulation)
        given = rows(simulation, "SELECT node, generation FROM assignment ORDER BY node")
        simulation.post.silence(["node-0"])
        simulation.advance(300, CALM_TICK_SECONDS)
        assert rows(simulation, "SELECT max(generation) FROM plan") == [(generation,)]
        assert rows(simulation, "SELECT state FROM plan ORDER BY generation DESC LIMIT 1") == [("paused",)]
        assert rows(simulation, "SELECT node, generation FROM assignment ORDER BY node") == given
        (last,) = rows(simulation, "SELECT reason, message FROM cycle ORDER BY at DESC LIMIT 1")
        assert last.reason == "rollout_paused"
        assert last.message.startswith(f"a person has paused plan {generation}; ")
        assert "shop/a is short of " in last.message
        assert rows(simulation, "SELECT count(*) FROM event WHERE reason = 'node_lost'") == [(1,)]
        (found,) = rows(simulation, "SELECT status FROM object WHERE kind = 'Service' AND name = 'a'")
        assert {item["type"]: item["status"] for item in found.status["conditions"]}["Planned"] == "False"
        change(simulation, generation, PlanState.PAUSED, PlanState.ROLLING)
        simulation.advance(120, CALM_TICK_SECONDS)
        assert rows(simulation, "SELECT max(generation) FROM plan") > [(generation,)]
        assert simulation.fleet.ready("shop/a")


def test_after_a_pause_the_fast_lane_answers_before_the_next_cycle(database_url: str) -> None:
    load = [1.0]
    shapes = {"shop/a": lambda seconds: load[-1]}
    with open_simulation(database_url, small(gpus=6), shapes) as simulation:
        generation = rolling(simulation)
        load.append(1.5)
        simulation.advance(30)
        cycles = simulation.cycles
        for _ in simulation.seconds(60):
            if simulation.cycles > cycles:  # it found the rollout paused; the next is half a minute away
                break
        assert rows(simulation, "SELECT max(generation) FROM plan") == [(generation,)]
        change(simulation, generation, PlanState.PAUSED, PlanState.ROLLING)
        load.append(2.5)
        cycles = simulation.cycles
        for _ in simulation.seconds(20):
            if rows(simulation, "SELECT 1 FROM plan WHERE lane = 'fast'"):
                break
        assert simulation.cycles == cycles
        steps = rows(simulation, "SELECT base, reason FROM plan WHERE lane = 'fast'")
        assert steps == [(generation, "load_rose")]
        (event,) = rows(simulation, "SELECT kind, tenant, name FROM event WHERE reason = 'load_rose'")
        assert event == ("Service", "shop", "a")


def test_a_decision_made_before_the_pause_is_not_recorded_after_it(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        made = None
        for _ in simulation.seconds(60):
            made = simulation.last if simulation.last and simulation.last.decision else made
            if made:
                break
        assert made and made.snapshot and made.decision
        generation = simulation.database.read(plan_reads.read_generation_in_force)
        change(simulation, generation, PlanState.ROLLING, PlanState.PAUSED)
        store, snapshot = simulation.planner.store, replace(made.snapshot, target=generation)
        with pytest.raises(Overtaken, match=f"a person has paused plan {generation}"):
            store.record(snapshot, [made.decision])
        assert rows(simulation, "SELECT state FROM plan ORDER BY generation DESC LIMIT 1") == [("paused",)]


def test_the_time_of_a_rollout_begins_again_when_it_is_resumed(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        generation = rolling(simulation)
        simulation.advance(30)
        resumed_at = simulation.clock.now()
        change(simulation, generation, PlanState.PAUSED, PlanState.ROLLING)
        plan = simulation.planner.store.view().plan
        assert plan and plan.at < resumed_at <= plan.rolling_since
