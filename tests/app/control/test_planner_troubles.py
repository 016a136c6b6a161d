"""A planner under odd requests, and with a database that goes away in the middle of everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from math import inf
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from app.control.cycle import CycleBudget
from app.control.domain.desired import FleetStatus
from app.control.domain.events import Reason
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.fast.lane import FastLane, LaneResult
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.encoding import make_finite
from app.control.record.planner_store import PlannerStore
from app.control.solve.inline import Inline
from app.manifests.model import Key, Kind
from app.store.database.database import Unavailable
from app.store.fleet import cordons
from app.store.plans import plan_reads
from simulation.run import WORK, Simulation, open_simulation
from simulation.shapes import spike
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance
from tests.proofs.campaign.faults import spoiled
from tests.simulation.chaos import Failing
from tests.simulation.worlds import CALM_TICK_SECONDS, small, withdraw

FOUR_TIMES = {"shop/a": spike(90.0)}


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


def say(simulation: Simulation, sql: str) -> None:
    simulation.database.write(lambda c: c.execute(text(sql)))


def close(simulation: Simulation, mode: str) -> None:
    """Ask for every node to take nothing new, or to be emptied."""
    for name in simulation.fleet.nodes:
        simulation.database.write(lambda c, name=name: cordons.put(c, name, -1, mode, None, "night", ""))  # type: ignore[misc]


def delete(simulation: Simulation, service: str) -> None:
    withdraw(simulation.database, Key(Kind.SERVICE, "shop", service))


def newest(simulation: Simulation) -> int:
    return simulation.database.read(plan_reads.read_generation_in_force)


def services_told(simulation: Simulation) -> set[str]:
    assigned = simulation.planner.store.view().assigned
    return {instance.service for wanted in assigned.values() for instance in wanted.instances}


@pytest.mark.slow
def test_a_drain_without_room_takes_nothing_down_and_refuses_no_request_at_any_load(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4), FOUR_TIMES) as simulation:
        simulation.advance(80, CALM_TICK_SECONDS)
        ready = {name: simulation.fleet.ready(name) for name in ("shop/a", "shop/b", "shop/c")}
        close(simulation, "drain")
        simulation.advance(90)
        assert {name: simulation.fleet.ready(name) for name in ready} == ready
        refused = rows(simulation, "SELECT service, shed_share FROM traffic_limit WHERE shed_share >= 0.9")
        assert refused == [], "what serves is not shut at the gateway"


@pytest.mark.slow
def test_a_quick_step_that_breaks_a_rule_is_never_assigned(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4), FOUR_TIMES) as simulation:
        solver = Failing()
        store = PlannerStore(simulation.database, "another", 30.0)
        simulation.planner = Planner(store, solver, ReportListener(simulation.database), CycleBudget(work=WORK))
        simulation.advance(89, CALM_TICK_SECONDS)
        solver.spoil = spoiled
        simulation.advance(20)
        assert solver.spoil is None, "the step was asked for"
        wrong = rows(simulation, "SELECT message FROM event WHERE reason = 'solver_wrong'")
        assert any("quick step" in message for (message,) in wrong)
        assigned = simulation.planner.store.view().assigned.values()
        assert min(instance.sm_percent for wanted in assigned for instance in wanted.instances) > 5


@pytest.mark.slow
def test_a_service_that_is_deleted_goes_from_cordoned_nodes_too(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        simulation.advance(80, CALM_TICK_SECONDS)
        close(simulation, "cordon")
        simulation.advance(35)
        delete(simulation, "b")
        simulation.advance(120, CALM_TICK_SECONDS)
        assert services_told(simulation) == {"a", "c"}


@pytest.mark.slow
def test_a_rollback_is_not_lost_to_a_plan_that_something_else_calls_for(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        simulation.advance(45, CALM_TICK_SECONDS)
        first = newest(simulation)
        delete(simulation, "c")
        simulation.advance(45, CALM_TICK_SECONDS)
        unwanted = newest(simulation)
        assert unwanted > first
        simulation.database.write(lambda c: plan_reads.store_request(c, unwanted, "rollback", "night"))
        delete(simulation, "b")
        simulation.advance(35)
        lanes = rows(simulation, f"SELECT lane FROM plan WHERE generation > {unwanted} ORDER BY generation LIMIT 1")
        assert lanes == [("rollback",)]


def test_a_plan_of_instances_that_never_answer_can_be_read_again() -> None:
    line = Instance("i1", "shop/a", "node-1", 0, "fp16", 1, 0.0, 10, 1.0, 1530.0, 200.0, latency_ms=inf)
    written = msgspec.json.encode(make_finite(Plan((line,))))
    assert msgspec.json.decode(written, type=Plan).instances[0].latency_ms >= 1e9


class Flaky:
    """A planner's hearing whose database is away when it begins, so often."""

    def __init__(self, inner: ReportListener, times: int) -> None:
        self.inner, self.times = inner, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def begin(self, last: Mapping[str, ExpectedLoad]) -> None:
        self.times -= 1
        if self.times >= 0:
            raise Unavailable("the database cannot be reached")
        self.inner.begin(last)


@pytest.mark.slow
def test_a_new_leader_acts_only_once_it_knows_what_was_asked_before(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=12), {"shop/a": spike(60.0, hold_seconds=3600.0)}) as simulation:
        simulation.advance(300, CALM_TICK_SECONDS)
        planned = _planned_rate(simulation)
        assert planned > 600
        simulation.plans = False
        simulation.advance(31)
        database = simulation.database
        new = Planner(
            PlannerStore(database, "another", 30.0), Inline(), Flaky(ReportListener(database), 1), CycleBudget()
        )
        with pytest.raises(Unavailable):
            new.lead()
        assert new.store.epoch == 0
        assert new.cycle(Reason.CYCLE) is None, "it would plan for what is declared"
        assert new.lead()
        new.cycle(Reason.CYCLE)
        assert _planned_rate(simulation) >= 0.9 * planned


@pytest.mark.slow
def test_a_notice_whose_answer_failed_is_answered_once_the_database_is_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[object] = [Unavailable("the database cannot be reached"), LaneResult()]

    def leave(lane: FastLane, snapshot: Snapshot, tell: Callable[[], object]) -> LaneResult:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        assert isinstance(answer, LaneResult)
        return answer

    with open_simulation(database_url, small(gpus=2)) as simulation:
        simulation.advance(30)
        simulation.plans = False
        planner = simulation.planner
        monkeypatch.setattr(FastLane, "leave", leave)
        planner._troubles.look(FleetStatus(reclaimed_at={"node-0": planner.store.moment().timestamp() + 120.0}))
        with pytest.raises(Unavailable):
            planner.quicken()
        planner.quicken()
        assert not answers
        planner.quicken()


def _planned_rate(simulation: Simulation) -> float:
    assigned = simulation.planner.store.snapshot(lambda known: {}).in_force
    return sum(
        instance.rate_per_second
        for wanted in assigned.values()
        for instance in wanted.instances
        if instance.service == "a"
    )


@pytest.mark.slow
def test_case_18_a_database_whose_clock_is_set_back_an_hour_counts_at_once(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=12), {"shop/a": spike(120.0)}) as simulation:
        simulation.advance(100, CALM_TICK_SECONDS)
        usual = simulation.fleet.ready("shop/a")
        _set_back(simulation)
        simulation.advance(90)
        assert simulation.fleet.ready("shop/a") > usual, "what is said now is heard now"


@pytest.mark.slow
def test_case_18_no_planner_waits_for_a_lease_renewed_in_the_future(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=2)) as simulation:
        simulation.advance(10)
        _set_back(simulation)
        database = simulation.database
        assert Planner(
            PlannerStore(database, "another", 30.0), Inline(), ReportListener(database), CycleBudget()
        ).lead()


def _set_back(simulation: Simulation) -> None:
    simulation.database._moment = lambda: simulation.clock.now() - timedelta(hours=1)
