"""Copies whose start failed on a GPU start on another one at once, if one can take them; else there again, later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from app.control.answer.replay import record_of, replay
from app.control.domain.failures import FIRST_DELAY, RecentFailures, group_failures, read_failures, retry_delay
from app.control.solve.inline import Inline
from app.store.plans import plan_reads, plans
from simulation.run import Simulation, open_simulation
from simulation.world import put, read_documents, read_store, truth_of
from tests.simulation.worlds import CALM_TICK_SECONDS, Document, gpu_type, model, node, policy, profile, service

pytestmark = pytest.mark.slow

Place = tuple[str, int]
SETTLED_SECONDS = 80.0
QUICK_SECONDS, SLOW_SECONDS = 5.0, 20.0  # a node gives a quick start up before it is late, a slow one once it was late
FAILS_WITHIN_SECONDS = 480.0
SERVED_WITHIN_SECONDS = 60.0
BIG = "big"  # a GPU type of its own


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


@contextmanager
def settled(database_url: str, *documents: Document) -> Iterator[Simulation]:
    """A fleet in which everything of the world serves."""
    with open_simulation(
        database_url, read_documents([gpu_type(), gpu_type(BIG), policy(pricing="gpu"), *documents])
    ) as simulation:
        simulation.advance(SETTLED_SECONDS, CALM_TICK_SECONDS)
        assert all(simulation.fleet.ready(name) for name in simulation.fleet.declared)
        yield simulation


def declare(simulation: Simulation, *documents: Document) -> None:
    put(simulation.database, read_documents([gpu_type(), gpu_type(BIG), *documents]))
    simulation.fleet.follow(truth_of(simulation.database.read(read_store)))


def assigned_places(simulation: Simulation, name: str) -> set[Place]:
    view = simulation.planner.store.view()
    return {
        (node, line.gpu) for node, wanted in view.assigned.items() for line in wanted.instances if line.service == name
    }


def failures(simulation: Simulation) -> dict[str, RecentFailures]:
    plan = simulation.database.read(plans.read_plan_in_force)
    found = group_failures(read_failures(plan.progress), simulation.clock.now()) if plan else ()
    return {each.owner: each for each in found}


def break_first_place(simulation: Simulation, name: str) -> Place:
    """Waits for the first assignment of this service, and makes every start on its GPU fail from then on."""
    for _ in simulation.seconds(SETTLED_SECONDS):
        if places := assigned_places(simulation, name):
            (place,) = places
            simulation.fleet.nodes[place[0]].failing_gpus.add(place[1])
            return place
    raise AssertionError(f"{name} is assigned nowhere")


def wait_for_failure(simulation: Simulation, name: str, times: int = 1) -> RecentFailures:
    for _ in simulation.seconds(FAILS_WITHIN_SECONDS, 2.0):
        found = failures(simulation).get(name)
        if found and found.times == times:
            return found
    raise AssertionError(f"a step of {name} has not failed {times} times")


def wait_for_the_end_of_its_rest(simulation: Simulation, found: RecentFailures, name: str) -> None:
    """Waits while the service rests; until then it is assigned nowhere."""
    while simulation.clock.now() < found.last_at + retry_delay(found.times):
        assert assigned_places(simulation, name) == set()
        simulation.advance(1)


def until_served(simulation: Simulation, name: str, seconds: float) -> Iterator[float]:
    """Yields every second until the service has a ready copy; it must have one in time."""
    for second in simulation.seconds(seconds):
        yield second
        if simulation.fleet.ready(f"shop/{name}"):
            return
    raise AssertionError(f"{name} is not served after {seconds:g} s")


def small_service(
    name: str, kind: str = "v100-16gb", starts: float = QUICK_SECONDS, **more: Any
) -> tuple[Document, ...]:
    return model(name), profile(name, kind, startSeconds=starts), service(name, 100.0, **more)


def others(simulation: Simulation, name: str) -> set[tuple[str, str, int, float]]:
    """Returns what nodes are assigned of other services."""
    view = simulation.planner.store.view()
    return {
        (line.id, node, line.gpu, line.sm_percent)
        for node, wanted in view.assigned.items()
        for line in wanted.instances
        if line.service != name
    }


@pytest.mark.parametrize(
    ("starts", "told"), [(QUICK_SECONDS, ["step_failed"]), (SLOW_SECONDS, ["step_retried", "step_failed"])]
)
def test_a_copy_that_fails_on_one_gpu_is_served_from_another_within_a_minute_and_nothing_else_moves(
    database_url: str, starts: float, told: list[str]
) -> None:
    fleet = [node("node-0"), node("node-1"), *small_service("a"), *small_service("b")]
    with settled(database_url, *fleet) as simulation:
        declare(simulation, *small_service("d", starts=starts))
        failing = break_first_place(simulation, "d")
        found, before = wait_for_failure(simulation, "shop/d"), others(simulation, "d")
        assert found.places == (failing,)
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            assert failing not in assigned_places(simulation, "d")
            assert others(simulation, "d") == before
        reasons = [row.reason for row in rows(simulation, "SELECT reason FROM event WHERE reason LIKE 'step_%'")]
        assert reasons == told
        while simulation.clock.now() < found.last_at + FIRST_DELAY:
            simulation.advance(1)
            assert failing not in assigned_places(simulation, "d")
        ((generation, state),) = rows(simulation, "SELECT generation, state FROM plan ORDER BY generation DESC LIMIT 1")
        assert state == "done"
        record = simulation.database.read(lambda c: record_of(c, generation))
        assert record and record.plan
        assert {line.service for line in record.plan.instances} == {"shop/a", "shop/b", "shop/d"}
        assert replay(record, Inline()).is_identical


def test_where_no_other_gpu_can_take_a_copy_it_rests_and_starts_there_again(database_url: str) -> None:
    fleet = [node("node-0"), node("big-0", 1, BIG), *small_service("a")]
    with settled(database_url, *fleet) as simulation:
        declare(simulation, *small_service("d", BIG))
        failing = break_first_place(simulation, "d")
        found = wait_for_failure(simulation, "shop/d")
        simulation.fleet.nodes[failing[0]].failing_gpus.clear()
        wait_for_the_end_of_its_rest(simulation, found, "d")
        assert "step_failed_lately" in [row.reason for row in rows(simulation, "SELECT reason FROM cycle")]
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            pass
        assert assigned_places(simulation, "d") == {failing}


def test_a_service_that_fails_on_two_gpus_of_a_node_is_served_from_another_node(database_url: str) -> None:
    fleet = [node("node-0"), node("big-0", 3, BIG), node("big-1", 1, BIG), *small_service("a")]
    with settled(database_url, *fleet) as simulation:
        simulation.fleet.nodes["big-0"].failing_gpus.update(range(3))
        declare(simulation, *small_service("d", BIG))
        found = wait_for_failure(simulation, "shop/d")
        assert found.places == (("big-0", 0),)
        found = wait_for_failure(simulation, "shop/d", times=2)
        assert found.places == (("big-0", 0), ("big-0", 1))
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            pass
        assert assigned_places(simulation, "d") == {("big-1", 0)}


def test_after_its_rest_a_service_that_failed_on_two_nodes_is_tried_on_a_third(database_url: str) -> None:
    bad = ["big-0", "big-1"]
    fleet = [node("node-0"), *(node(f"big-{number}", 1, BIG) for number in range(3)), *small_service("a")]
    with settled(database_url, *fleet) as simulation:
        for name in bad:
            simulation.fleet.nodes[name].failing_gpus.add(0)
        declare(simulation, *small_service("d", BIG))
        found = wait_for_failure(simulation, "shop/d", times=2)
        assert found.places == (("big-0", 0), ("big-1", 0))
        wait_for_the_end_of_its_rest(simulation, found, "d")
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            assert assigned_places(simulation, "d") <= {("big-2", 0)}
        assert failures(simulation)["shop/d"].avoided == found.places, "no plan goes back there soon"
        ((generation,),) = rows(simulation, "SELECT generation FROM plan ORDER BY generation DESC LIMIT 1")
        record = simulation.database.read(lambda c: record_of(c, generation))
        assert record
        assert replay(record, Inline()).is_identical


def test_a_service_that_fails_on_two_nodes_rests_everywhere(database_url: str) -> None:
    fleet = [node("node-0"), *(node(f"big-{number}", 1, BIG) for number in range(2)), *small_service("a")]
    with settled(database_url, *fleet) as simulation:
        bad = [simulation.fleet.nodes[f"big-{number}"] for number in range(2)]
        for each in bad:
            each.failing_gpus.add(0)
        declare(simulation, *small_service("d", BIG))
        for times in (1, 2, 3):
            found = wait_for_failure(simulation, "shop/d", times)
            if times > 1:
                wait_for_the_end_of_its_rest(simulation, found, "d")
        assert len(found.places) == 2
        for each in bad:
            each.failing_gpus.clear()
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            pass


def test_what_only_the_gpu_of_a_failed_start_can_serve_starts_there_while_the_other_service_rests(
    database_url: str,
) -> None:
    fleet = [node("node-0"), node("big-0", 1, BIG), *small_service("a")]
    with settled(database_url, *fleet) as simulation:
        declare(simulation, *small_service("d", BIG))
        place = break_first_place(simulation, "d")
        found = wait_for_failure(simulation, "shop/d")
        simulation.fleet.nodes[place[0]].failing_gpus.clear()
        declare(simulation, *small_service("e", BIG))
        wait_for_the_end_of_its_rest(simulation, found, "d")
        assert simulation.fleet.ready("shop/e")
        planned = rows(simulation, "SELECT lane FROM plan WHERE 'shop/e' = ANY(services) ORDER BY generation")
        assert planned[0].lane == "full", "no quick step has to make good for the cycle"
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            pass


def approve_next(simulation: Simulation) -> None:
    """Waits for a proposal and approves it."""
    for _ in simulation.seconds(SETTLED_SECONDS):
        if proposed := proposals(simulation):
            return decide_on(simulation, proposed[-1], "rolling")
    raise AssertionError("no plan is proposed")


def decide_on(simulation: Simulation, generation: int, state: str) -> None:
    assert simulation.database.write(
        lambda c: plan_reads.change_state(c, generation, ["proposed"], state, "an operator")
    )


def proposals(simulation: Simulation) -> list[int]:
    found = rows(simulation, "SELECT generation FROM plan WHERE state = 'proposed' ORDER BY generation")
    return [row.generation for row in found]


@pytest.mark.parametrize("is_rejected", [False, True])
def test_a_proposal_around_a_failed_gpu_is_not_superseded_as_the_rest_ends(
    database_url: str, is_rejected: bool
) -> None:
    fleet = [node("node-0"), node("node-1"), *small_service("a")]
    with settled(database_url, *fleet) as simulation:
        declare(simulation, *small_service("d", mode="approve"))
        approve_next(simulation)
        failing = break_first_place(simulation, "d")
        found = wait_for_failure(simulation, "shop/d")
        for _ in simulation.seconds(SERVED_WITHIN_SECONDS):
            if proposed := proposals(simulation):
                break
        assert proposed and simulation.clock.now() < found.last_at + FIRST_DELAY
        while simulation.clock.now() < found.last_at + 4 * FIRST_DELAY:
            simulation.advance(1)
            assert proposals(simulation) == proposed
        if is_rejected:
            decide_on(simulation, proposed[0], "rejected")
            simulation.advance(SERVED_WITHIN_SECONDS)
            assert proposals(simulation) > proposed, "another one is made"
        approve_next(simulation)
        for _ in until_served(simulation, "d", SERVED_WITHIN_SECONDS):
            assert failing not in assigned_places(simulation, "d")
