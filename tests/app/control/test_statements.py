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
from simulation.run import Simulation, simulated
from simulation.world import put
from tests.simulation.worlds import small, withdraw

MOST_A_TICK = 8.0

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


def test_a_quiet_second_asks_once_for_the_fleet_and_once_for_news_of_loads(database_url: str) -> None:
    with simulated(database_url, small()) as simulation:
        simulation.advance(90)
        with counted(simulation) as found:
            simulation.advance(60)
        assert found.total() / 60 <= MOST_A_TICK, found
        assert found["fleet_at_this_step"] == found["news_of_loads"] == 60
        assert not found["current_xid"], "no transaction asks for its id"
        assert found["lease_held"] <= simulation.cycles, "nothing is written between two cycles"


def test_a_second_of_a_fleet_in_which_plans_roll_out_costs_few_statements_too(database_url: str) -> None:
    with simulated(database_url, small()) as simulation, counted(simulation) as found:
        simulation.advance(60)
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "a"))
        simulation.advance(60)
        put(simulation.database, small(rates=(250.0, 300.0, 100.0)))
        simulation.advance(60)
        assert found["write_assignments"] >= 3, "copies start, end and start again"
        assert found.total() / 180 <= MOST_A_TICK, found


def test_a_planner_that_was_replaced_steps_down_at_its_next_step_though_it_has_nothing_to_write(
    database_url: str,
) -> None:
    with simulated(database_url, small()) as simulation:
        simulation.advance(90)
        planner = simulation.planner
        assert planner.store.epoch == 1
        simulation.database.write(
            lambda connection: connection.exec_driver_sql("UPDATE lease SET epoch = 2, holder = 'another'")
        )
        assert not planner.advance()
        assert planner.store.epoch == 0
