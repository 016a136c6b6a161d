"""How much of old plans for replicas is kept, by age and by number."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.store.plans import scale_history, scale_plans
from tests.support.scaling import ScalerStore, draft


@pytest.fixture
def store(database_url: str) -> Iterator[ScalerStore]:
    made = ScalerStore(database_url)
    yield made
    made.database.close()


def test_old_plans_go_and_the_newest_and_a_write_in_doubt_stay(store: ScalerStore) -> None:
    epoch = store.lead("a")
    plans = [store.record(epoch, draft(number)) for number in (5, 6, 7)]
    [doubt] = store.record(epoch, draft(8)).rows
    store.begin(epoch, doubt)
    store.now += timedelta(days=31)
    newest = store.record(epoch, draft(8, name="search"))
    store.now += timedelta(days=31)
    assert store.database.write(lambda c: scale_history.forget_old(c, 30.0, 2)) == 2
    assert store.database.write(lambda c: scale_history.forget_old(c, 30.0, 2)) == 1
    assert store.database.write(lambda c: scale_history.forget_old(c, 30.0, 2)) == 0
    made = [plan.generation for plan in plans] + [doubt.generation, newest.generation]
    kept = [
        generation
        for generation in made
        if store.database.read(lambda c, g=generation: scale_plans.read_plan(c, g))  # type: ignore[misc]
    ]
    assert kept == made[-2:]


@pytest.mark.slow
def test_a_workload_that_changes_at_each_look_fills_no_table(store: ScalerStore) -> None:
    epoch = store.lead("a")
    first = store.record(epoch, draft(1), draft(5, name="calm")).generation
    for number in range(2, 12):
        newest = store.record(epoch, draft(number), draft(5, name="calm"))
    assert store.begin(epoch, newest.rows[1])

    def count(name: str) -> int:
        plans = range(first, newest.generation + 1)
        return sum(row.target.name == name for plan in plans for row in store.read(plan).rows)

    assert (count("calm"), count("ranker")) == (11, 11)
    assert store.database.write(lambda c: scale_history.forget_repeated(c, 3, 5)) == 5
    assert store.database.write(lambda c: scale_history.forget_repeated(c, 3, 5)) == 2
    assert (count("calm"), count("ranker")) == (4, 11), "the row that began, and three newest"
    assert store.database.write(lambda c: scale_history.forget_most(c, 4, 99)) == 7
    assert (count("calm"), count("ranker")) == (4, 4)
    assert [row.wanted for row in store.read().rows] == [5, 11]
    later = [store.record(epoch, draft(12), draft(number, name="calm")) for number in range(12, 15)]
    assert later[-1].rows[1].state == "held"
    assert store.database.write(lambda c: scale_history.forget_most(c, 1, 99)) == 11
    assert [row.state for row in store.database.read(scale_plans.find_writing)] == ["writing"]
