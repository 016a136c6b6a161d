"""The planner over a simulated fleet and a real Postgres: leadership, assignments, and what it leaves alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from app.control.cycle import CycleBudget
from app.control.domain.decision import SolveOutcome
from app.control.domain.events import Reason
from app.control.domain.leading import Deposed
from app.control.domain.snapshot import ExpectedLoad
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.record.records import read_plan
from app.control.solve.inline import Inline
from app.manifests.model import Key, Kind
from app.store.plans import plan_reads
from simulation.run import Simulation, open_simulation
from simulation.world import put, read_documents
from solvers.forecast import MarginScores
from tests.simulation.worlds import (
    CALM_TICK_SECONDS,
    document,
    gpu_type,
    model,
    node,
    policy,
    profile,
    service,
    withdraw,
)

pytestmark = pytest.mark.slow


@contextmanager
def fleet(url: str, mode: str = "auto", rate: float = 200.0, nodes: int = 2) -> Iterator[Simulation]:
    world = read_documents(
        [
            gpu_type(),
            policy(mode=mode),
            *(node(f"node-{number}") for number in range(nodes)),
            *(manifest for name in ("a", "b") for manifest in (model(name), profile(name))),
            service("a", rate),
            service("b", rate / 2),
        ]
    )
    with open_simulation(url, world) as made:
        yield made


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


def another(simulation: Simulation) -> Planner:
    """A second planner on the same database."""
    database = simulation.database
    return Planner(PlannerStore(database, "another", 30.0), Inline(), ReportListener(database), CycleBudget())


def test_a_declared_fleet_is_served_and_then_left_alone(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(90, CALM_TICK_SECONDS)
        assert simulation.fleet.ready("shop/a") >= 1
        assert simulation.fleet.ready("shop/b") >= 1
        before = rows(simulation, "SELECT max(generation) FROM assignment")
        simulation.advance(300, CALM_TICK_SECONDS)
        assert rows(simulation, "SELECT max(generation) FROM assignment") == before
        assert rows(simulation, "SELECT state FROM plan ORDER BY generation DESC LIMIT 1") == [("done",)]


def test_advisory_shows_a_plan_and_assigns_nothing(database_url: str) -> None:
    with fleet(database_url, mode="advisory") as simulation:
        simulation.advance(120, CALM_TICK_SECONDS)
        assert rows(simulation, "SELECT count(*) FROM assignment") == [(0,)]
        assert simulation.post.delivered == 0, "no agent received anything"
        assert {state for (state,) in rows(simulation, "SELECT state FROM plan")} == {"advisory"}


def test_a_plan_that_awaits_approval_is_acted_upon_once_it_has_it(database_url: str) -> None:
    with fleet(database_url, mode="approve") as simulation:
        simulation.advance(60, CALM_TICK_SECONDS)
        assert rows(simulation, "SELECT count(*) FROM assignment") == [(0,)]
        (proposed,) = rows(simulation, "SELECT generation FROM plan WHERE state = 'proposed'")
        simulation.database.write(
            lambda c: c.execute(text(f"UPDATE plan SET state = 'rolling' WHERE generation = {proposed[0]}"))
        )
        simulation.advance(60, CALM_TICK_SECONDS)
        assert simulation.fleet.ready("shop/a") >= 1


def test_case_2_what_a_replaced_leader_decides_is_not_recorded_and_it_steps_down(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(60, CALM_TICK_SECONDS)
        old, new = simulation.planner, another(simulation)
        assert not new.lead(), "the old one holds the lease"
        simulation.plans = False
        simulation.advance(31)
        assert new.lead()
        plans = rows(simulation, "SELECT count(*) FROM plan")
        assignments = rows(simulation, "SELECT node, generation FROM assignment ORDER BY node")
        assert old.store.epoch == 1, "it was paused, and does not know yet"
        assert old.cycle(Reason.CYCLE) is None
        assert old.store.epoch == 0
        assert not old.advance()
        assert not old.lead()
        assert rows(simulation, "SELECT count(*) FROM plan") == plans
        assert rows(simulation, "SELECT node, generation FROM assignment ORDER BY node") == assignments


def test_a_new_leader_continues_with_the_margins_of_the_last(database_url: str) -> None:
    scores = MarginScores(9, ((2, 0.2), (5, 0.1)), 0.05, 0.01)
    with fleet(database_url) as simulation:
        simulation.advance(60, CALM_TICK_SECONDS)
        learned = ExpectedLoad(200.0, scores=scores, missed_hours=1, known_hours=9)
        simulation.planner.loads.begin({"shop/a": learned})
        put(simulation.database, read_documents([gpu_type(), model("b"), profile("b"), service("b", 150.0)]))
        simulation.advance(60, CALM_TICK_SECONDS)
        new = another(simulation)
        simulation.plans = False
        simulation.advance(31)
        assert new.lead()
        known = new.loads.expect({"shop/a": 200.0}, {}, {}, simulation.clock.now(), {})["shop/a"]
        assert known.scores == scores
        assert known.margin == scores.margin(0.05) > 0
        assert (known.missed_hours, known.known_hours) == (1, 9)


def test_a_leader_begins_though_it_cannot_read_the_last_snapshot(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(60, CALM_TICK_SECONDS)
        assert "shop/a" in simulation.planner.store.read_learned()[1]
        other = zlib.compress(b'{"expected": 3}')
        parts = "SELECT decode(jsonb_array_elements_text(snapshot), 'hex') FROM plan"
        simulation.database.write(
            lambda connection: connection.execute(
                text(f"UPDATE piece SET body = :other WHERE hash IN ({parts})"), {"other": other}
            )
        )
        new = another(simulation)
        simulation.plans = False
        simulation.advance(31)
        assert new.lead()


def test_case_2_a_replaced_leader_answers_no_request_and_forgets_no_plan(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(60, CALM_TICK_SECONDS)
        old, new = simulation.planner, another(simulation)
        simulation.plans = False
        generation = simulation.database.read(plan_reads.read_generation_in_force)
        simulation.database.write(lambda c: plan_reads.store_request(c, generation, "rollback", "an operator"))
        simulation.advance(31)
        assert new.lead()
        kept = rows(simulation, "SELECT generation, asked FROM plan ORDER BY generation")
        with pytest.raises(Deposed):
            old.store.refuse_request(generation, "rollback")
        assert old.forget(0.0, 0.0) == 0
        assert old.store.epoch == 0, "it has stepped down"
        assert rows(simulation, "SELECT generation, asked FROM plan ORDER BY generation") == kept
        assert "rollback" in kept[-1][1]


def test_case_1_a_leader_that_dies_before_assigning_is_replaced_and_its_work_continues(
    database_url: str,
) -> None:
    with fleet(database_url) as simulation:
        simulation.plans = False
        simulation.advance(25)
        assert simulation.planner.lead()
        found = simulation.planner.cycle(Reason.CYCLE)
        assert found is not None
        assert found.generation > 0
        new = another(simulation)
        simulation.advance(31)  # the first planner died before it assigned anything
        assert new.lead()
        for _ in simulation.seconds(60):
            new.advance()
        assert simulation.fleet.ready("shop/a") >= 1
        started = [copy.id for node in simulation.fleet.nodes.values() for copy in node.alive()]
        wanted = {instance.id for wanted in new.store.view().assigned.values() for instance in wanted.instances}
        assert len(started) == len(wanted), "nothing was started twice"


def test_the_same_question_is_answered_once(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(120, CALM_TICK_SECONDS)
        outcomes = [row for (row,) in rows(simulation, "SELECT outcome FROM cycle ORDER BY id DESC LIMIT 2")]
        assert outcomes == [SolveOutcome.UNCHANGED, SolveOutcome.UNCHANGED]
        kept = rows(simulation, "SELECT jsonb_array_length(snapshot) FROM cycle ORDER BY id DESC LIMIT 1")
        assert kept == [(0,)], "a cycle that saw nothing new stores nothing"


def test_case_8_a_silent_node_keeps_its_instances_until_it_counts_as_lost(database_url: str) -> None:
    with fleet(database_url, nodes=3) as simulation:
        simulation.advance(90, CALM_TICK_SECONDS)
        before = {
            name: {instance.id for instance in wanted.instances} for name, wanted in _assigned(simulation).items()
        }
        away = next(name for name, ids in before.items() if ids)
        simulation.post.silence([away])
        simulation.advance(100, CALM_TICK_SECONDS)
        now = {name: {instance.id for instance in wanted.instances} for name, wanted in _assigned(simulation).items()}
        assert now[away] == before[away], "no replacement before lostAfterSeconds"
        simulation.advance(120, CALM_TICK_SECONDS)
        for name in ("shop/a", "shop/b"):
            assert simulation.fleet.ready(name) >= 1, "and then one elsewhere"


def test_a_deleted_service_is_taken_down(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(90, CALM_TICK_SECONDS)
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "b"))
        simulation.advance(120, CALM_TICK_SECONDS)
        assert not any(
            instance.service == "b" for wanted in _assigned(simulation).values() for instance in wanted.instances
        )
        assert simulation.fleet.ready("shop/a") >= 1


def test_a_service_declared_in_advisory_mode_is_shown_while_the_others_are_served(database_url: str) -> None:
    documents = [gpu_type(), policy(mode="auto"), node("node-0"), model("a"), profile("a"), model("b"), profile("b")]
    slo = {"latencyMs": 120, "percentile": 98}
    shown = document("Service", "b", {"model": "b", "slo": slo, "ratePerSecond": 50, "mode": "advisory"}, "shop")
    with open_simulation(database_url, read_documents([*documents, service("a", 100.0), shown])) as simulation:
        simulation.advance(90, CALM_TICK_SECONDS)
        assert simulation.fleet.ready("shop/a") >= 1
        assert simulation.fleet.ready("shop/b") == 0
        assert "advisory" in {state for (state,) in rows(simulation, "SELECT state FROM plan")}


def _assigned(simulation: Simulation) -> Any:
    return simulation.planner.store.view().assigned


def test_while_a_plan_is_rolled_out_the_next_one_makes_only_what_is_needed(database_url: str) -> None:
    with fleet(database_url, nodes=4) as simulation:
        simulation.advance(4)
        put(simulation.database, read_documents([gpu_type(), model("a"), profile("a"), service("a", 600.0)]))
        found = simulation.planner.cycle(Reason.CYCLE)
        assert found
        assert found.generation
        recorded = rows(simulation, "SELECT generation FROM plan ORDER BY generation")
        first, second = (simulation.database.read(partial(read_plan, generation=plan)) for (plan,) in recorded)
        assert first and first.drafts[0].counted["horizonMinutes"] == 60.0, "nothing was rolled out yet"
        assert second and second.drafts[0].counted["horizonMinutes"] == 3.0
