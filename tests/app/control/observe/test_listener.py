"""A leader keeps the reports it hears, even when the database does not accept them at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sqlalchemy import text

from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.drift.drift import Drift
from app.store.database.database import Unavailable
from simulation.run import Simulation, open_simulation
from tests.simulation.worlds import small
from tests.support.postgres import DatabaseServer

pytestmark = pytest.mark.slow


def kept(simulation: Simulation) -> list[tuple[str, float]]:
    """Of which service and when each bucket is, in seconds."""
    sql = "SELECT service, extract(epoch FROM at) FROM service_load ORDER BY service, at"
    return [(name, float(at)) for name, at in simulation.database.read(lambda c: list(c.execute(text(sql))))]


def test_buckets_that_the_database_did_not_take_are_kept_with_the_next(
    postgres: DatabaseServer, database_url: str
) -> None:
    with open_simulation(database_url, small(gpus=2)) as simulation:
        simulation.advance(90)
        before, loads = kept(simulation), simulation.planner.loads
        simulation.plans = False
        for _ in simulation.seconds(25):
            loads.read_recent()
        postgres.takes_writes(database_url, False)
        simulation.database.engine.dispose()
        for _ in range(2):
            with pytest.raises(Unavailable):
                loads.store_buckets()
        postgres.takes_writes(database_url, True)
        simulation.database.engine.dispose()
        assert kept(simulation) == before
        for _ in simulation.seconds(12):
            loads.read_recent()
        loads.store_buckets()
        for name in {name for name, _ in before}:
            ats = [at for service, at in kept(simulation) if service == name]
            assert len(ats) > sum(service == name for service, _ in before) + 2
            gaps = [later - earlier for earlier, later in pairwise(ats)]
            assert max(gaps) < 20, "no bucket is missing"


def test_a_correction_that_the_database_did_not_take_is_recorded_with_the_next_ones(
    postgres: DatabaseServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_simulation(database_url, small(gpus=2)) as simulation:
        simulation.advance(30)
        base = simulation.planner._lane.base
        assert base
        found = [[ProfileCorrection("m/v/t4", message="it is slower than declared")], [], []]
        monkeypatch.setattr(Drift, "correct", lambda drift, now: found.pop(0))
        problem, epoch, loads = base.question.problem, simulation.planner.store.epoch, simulation.planner.loads
        postgres.takes_writes(database_url, False)
        simulation.database.engine.dispose()
        with pytest.raises(Unavailable):
            loads.learn(epoch, problem, problem.profiles)
        postgres.takes_writes(database_url, True)
        simulation.database.engine.dispose()
        assert loads.learn(epoch, problem, problem.profiles), "a plan is due"
        assert not loads.learn(epoch, problem, problem.profiles), "it is recorded once"
