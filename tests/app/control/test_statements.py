"""A second of the control plane costs few statements, whether its fleet is quiet or busy.

They are counted, not timed: of the planner and of all that a simulation plays around it, nodes and gateways included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from app.manifests.model import Key, Kind
from simulation.run import Simulation, open_simulation
from simulation.world import put
from tests.simulation.worlds import CALM_TICK_SECONDS, small, withdraw

MOST_A_QUIET_SECOND = 3.0
MOST_A_BUSY_SECOND = 4.0
MOST_IN_FIVE_SECONDS = 7.46

pytestmark = pytest.mark.slow


@contextmanager
def counted(simulation: Simulation) -> Iterator[Counter[str]]:
    """Counts the statements that run meanwhile, by name."""
    found: Counter[str] = Counter()

    def count(_connection: Any, _cursor: Any, _sql: str, _values: Any, context: Any, _many: bool) -> None:
        found[context.execution_options.get("statement", "unnamed")] += 1

    event.listen(simulation.database.engine, "before_cursor_execute", count)
    yield found
    event.remove(simulation.database.engine, "before_cursor_execute", count)


def test_a_quiet_second_asks_once_for_the_fleet_together_with_the_news_of_loads(database_url: str) -> None:
    with open_simulation(database_url, small()) as simulation:
        simulation.advance(90)
        with counted(simulation) as found:
            simulation.advance(60)
        assert found.total() / 60 <= MOST_A_QUIET_SECOND, found
        assert found["fleet_at_this_step"] == 60
        assert not found["news_of_loads"], "they come with the fleet"
        assert not found["assignments_since"] and not found["traffic_limits"], "nodes and gateways wait for news"
        assert not found["current_xid"], "no transaction asks for its id"
        assert found["lease_held"] <= simulation.cycles, "nothing is written between two cycles"


def test_a_second_of_a_fleet_in_which_plans_roll_out_costs_few_statements_too(database_url: str) -> None:
    with open_simulation(database_url, small()) as simulation, counted(simulation) as found:
        simulation.advance(60)
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "a"))
        simulation.advance(60)
        put(simulation.database, small(rates=(250.0, 300.0, 100.0)))
        simulation.advance(60)
        assert found["write_assignments"] >= 3, "copies start, end and start again"
        assert found.total() / 180 <= MOST_A_BUSY_SECOND, found


def test_five_seconds_in_one_tick_cost_few_statements_too(database_url: str) -> None:
    with open_simulation(database_url, small()) as simulation, counted(simulation) as found:
        simulation.advance(90, CALM_TICK_SECONDS)
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "b"))
        simulation.advance(120, CALM_TICK_SECONDS)
        assert found.pop("rented_nodes") == 1, "a new leader asks once where no pool is declared"
        del found["reported_notices"]  # read again after so many seconds of the real clock, however busy the machine is
        assert found.total() / (210 / CALM_TICK_SECONDS) <= MOST_IN_FIVE_SECONDS, found


def test_what_a_planner_writes_into_statuses_does_not_make_it_read_the_world_again(database_url: str) -> None:
    with open_simulation(database_url, small()) as simulation, counted(simulation) as found:
        simulation.advance(90, CALM_TICK_SECONDS)
        assert found["update_object_statuses"] >= 2, "of its own, and of the devices that nodes report"
        assert found["declared_world"] == 1 and not found["objects_gone_since"], found


def test_a_planner_that_was_replaced_steps_down_at_its_next_step_though_it_has_nothing_to_write(
    database_url: str,
) -> None:
    with open_simulation(database_url, small()) as simulation:
        simulation.advance(90)
        planner = simulation.planner
        assert planner.store.epoch == 1
        simulation.database.write(
            lambda connection: connection.exec_driver_sql("UPDATE lease SET epoch = 2, holder = 'another'")
        )
        assert not planner.advance()
        assert planner.store.epoch == 0
