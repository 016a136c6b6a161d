"""A fleet that another planner plans: its plans are judged, rolled out, recorded and replayed like all others."""

from __future__ import annotations

from typing import Any

import pytest

from app.control.answer.replay import Record, read_record, record_of, replay, write_record
from app.control.domain.decision import SolveOutcome, SolverOrder
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from app.control.solve.orders import Solve, solve_order
from app.store.plans import plan_reads
from simulation.run import Simulation, open_simulation
from simulation.shapes import steady
from tests.simulation.worlds import all_noisy, small, steps

pytestmark = pytest.mark.slow

RISES_AT = 240.0
RISEN_AT = 120.0


def generations(simulation: Simulation) -> list[int]:
    rows = simulation.database.read(lambda connection: plan_reads.page(connection, 2**62, 1000))
    return sorted(int(row["generation"]) for row in rows)


def running(simulation: Simulation) -> set[str]:
    return {line.id for wanted in simulation.planner.store.view().target.values() for line in wanted.instances}


def shares(simulation: Simulation) -> list[tuple[str, float]]:
    """Returns the GPU and the SM% of each instance that is to run."""
    target = simulation.planner.store.view().target
    return [(f"{name}/{line.gpu}", line.sm_percent) for name, wanted in target.items() for line in wanted.instances]


def knowledge_in(record: Record) -> Any:
    return record.drafts[0].counted["knowledge"]


def test_hetsev_runs_a_fleet_adds_what_a_lasting_load_needs_and_is_replayed(database_url: str) -> None:
    world = small(gpus=6, rates=(200.0, 150.0), planner="hetsev", cycleSeconds=15)
    shapes = {"shop/a": steps([1.0, 3.0], RISES_AT), "shop/b": steps([1.0, 1.0], RISES_AT)}
    with open_simulation(database_url, world, all_noisy(shapes, 0.01)) as simulation:
        simulation.planner.solver = Inline()  # with bounds, as live
        simulation.advance(RISES_AT, 2.0)
        before, cycles = running(simulation), simulation.cycles
        assert before
        simulation.advance(RISES_AT, 2.0)
        assert simulation.cycles >= cycles + 12  # no question of such a planner goes unasked
        assert before < running(simulation)  # nothing that ran was moved, stopped or resized
        history = simulation.history.kinds(60.0)
        assert history["move"] == history["resize"] == history["stop"] == 0
        read = simulation.database.read
        records = [read(lambda c, g=found: record_of(c, g)) for found in generations(simulation)]  # type: ignore[misc]
    made = [record for record in records if record and record.drafts[0].order is SolverOrder.SOLVE]
    assert len(made) >= 2
    assert len(made) == len(records)  # no quick step and no least change of the joint planner
    for record in made:
        assert record.drafts[0].counted["planner"] == "hetsev"
        assert record.plan
        assert record.plan.certificate
        assert record.plan.certificate.method.startswith("hetsev: ")
        assert record.plan.certificate.bound is not None
        assert replay(read_record(write_record(record)), Inline()).is_identical
    assert any(knowledge["hetsev"]["overSince"] for record in made if (knowledge := knowledge_in(record)))


def test_mudi_runs_a_fleet_resizes_in_place_as_the_load_rises_and_is_replayed(database_url: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), planner="mudi", cycleSeconds=15)
    shapes = {"shop/a": steps([1.0, 3.0], RISES_AT), "shop/b": steps([1.0, 1.0], RISES_AT)}
    with open_simulation(database_url, world, all_noisy(shapes, 0.01)) as simulation:
        simulation.advance(RISES_AT, 2.0)
        before = shares(simulation)
        assert len({place for place, _ in before}) == len(before) == 2
        simulation.advance(RISES_AT, 2.0)
        after = shares(simulation)
        assert {place for place, _ in before} == {place for place, _ in after}
        assert sum(sm for _, sm in after) > sum(sm for _, sm in before)
        assert simulation.history.kinds(60.0)["resize"] >= 1
        read = simulation.database.read
        records = [read(lambda c, g=found: record_of(c, g)) for found in generations(simulation)]  # type: ignore[misc]
    assert len(records) >= 2
    for record in records:
        assert record
        assert record.drafts[0].counted["planner"] == "mudi"
        assert replay(read_record(write_record(record)), Inline()).is_identical


def test_morak_runs_a_fleet_keeps_its_shares_adds_instances_and_is_replayed(database_url: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), planner="morak", cycleSeconds=30)
    shapes = {"shop/a": steps([1.0, 6.0], RISEN_AT), "shop/b": steps([1.0, 1.0], RISEN_AT)}
    with open_simulation(database_url, world, all_noisy(shapes, 0.01)) as simulation:
        simulation.advance(RISEN_AT, 5.0)
        before = shares(simulation)
        assert len({place for place, _ in before}) < len(before)  # services share a GPU
        simulation.advance(RISEN_AT, 5.0)
        after = shares(simulation)
        assert set(before) <= set(after)
        assert len(after) > len(before)
        assert simulation.history.kinds(60.0)["move"] == 0
        read = simulation.database.read
        records = [read(lambda c, g=found: record_of(c, g)) for found in generations(simulation)]  # type: ignore[misc]
    assert len(records) >= 2
    for record in records:
        assert record
        assert record.drafts[0].counted["planner"] == "morak"
        assert replay(read_record(write_record(record)), Inline()).is_identical


def test_inss_runs_a_fleet_keeps_what_runs_as_the_load_rises_and_is_replayed(database_url: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), planner="inss", cycleSeconds=15)
    shapes = {"shop/a": steps([1.0, 6.0], RISES_AT), "shop/b": steps([1.0, 1.0], RISES_AT)}
    with open_simulation(database_url, world, all_noisy(shapes, 0.01)) as simulation:
        simulation.advance(RISES_AT, 2.0)
        before = running(simulation)
        assert before
        simulation.advance(RISES_AT, 2.0)
        assert before <= running(simulation)
        read = simulation.database.read
        records = [read(lambda c, g=found: record_of(c, g)) for found in generations(simulation)]  # type: ignore[misc]
    assert records
    for record in records:
        assert record
        assert record.drafts[0].counted["planner"] == "inss"
        assert replay(read_record(write_record(record)), Inline()).is_identical


def test_oltunes_runs_a_fleet_adds_instances_as_the_load_rises_and_is_replayed(database_url: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), planner="oltunes", cycleSeconds=15)
    shapes = {"shop/a": steps([1.0, 8.0], RISES_AT), "shop/b": steps([1.0, 1.0], RISES_AT)}
    with open_simulation(database_url, world, all_noisy(shapes, 0.01)) as simulation:
        simulation.advance(RISES_AT, 2.0)
        before = running(simulation)
        assert before
        simulation.advance(RISES_AT / 2, 2.0)
        assert before < running(simulation)  # what ran stays where it was
        history = simulation.history.kinds(60.0)
        assert history["move"] == history["resize"] == history["stop"] == 0
        read = simulation.database.read
        records = [read(lambda c, g=found: record_of(c, g)) for found in generations(simulation)]  # type: ignore[misc]
    assert len(records) >= 2
    for record in records:
        assert record
        assert record.drafts[0].counted["planner"] == "oltunes"
        assert record.plan
        assert record.plan.certificate
        assert record.plan.certificate.method.startswith("oltunes: idlest GPU first")
        assert replay(read_record(write_record(record)), Inline()).is_identical


def test_a_refused_plan_names_the_planner_and_its_rule(database_url: str) -> None:
    world = small(gpus=2, rates=(50.0,), planner="hetsev", powerBudgetW=82)
    with open_simulation(database_url, world, {"shop/a": steady}) as simulation:
        simulation.advance(10.0, 2.0)
        assert simulation.last
        assert simulation.last.outcome is SolveOutcome.WRONG
        assert "the plan of hetsev breaks 1 rules: fleet: power_budget_holds" in simulation.last.message
        assert simulation.last.question
        snapshot = simulation.last.snapshot
    assert snapshot
    answer = solve_order(Solve(formulate(snapshot).problem, None, 5), alone=True)
    assert answer.outcome is SolveOutcome.WRONG
    assert answer.counted["planner"] == "hetsev"
