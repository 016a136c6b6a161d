"""A plan for which no other planner was asked keeps what is known of their plans, with its age."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from simulation.run import open_simulation
from tests.simulation.worlds import small

pytestmark = pytest.mark.slow


def test_a_quick_step_carries_the_plans_of_other_planners_over_with_their_age(database_url: str) -> None:
    load = [1.0]
    with open_simulation(database_url, small(gpus=6), {"shop/a": lambda seconds: load[-1]}) as simulation:

        def rows(sql: str) -> list[Any]:
            return simulation.database.read(lambda c: list(c.execute(text(sql))))

        simulation.advance(100)
        (asked,) = rows("SELECT at, others FROM plan ORDER BY generation DESC LIMIT 1")
        assert {other["ageSeconds"] for other in asked.others} == {0.0}
        load.append(2.5)
        steps = []
        for _ in simulation.seconds(60):
            if steps := rows("SELECT at, others FROM plan WHERE lane = 'fast' ORDER BY generation"):
                break
        age_seconds = (steps[0].at - asked.at).total_seconds()
        assert age_seconds > 0
        assert steps[0].others == [{**other, "ageSeconds": pytest.approx(age_seconds)} for other in asked.others]
        listed = rows("SELECT DISTINCT asked_at FROM report.other_planners")
        assert [row.asked_at for row in listed] == [asked.at]
