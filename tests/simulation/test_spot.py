"""Spot nodes are reclaimed with two minutes' notice, and every promise is kept through each."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.control.answer.replay import read_record, record_of, replay, write_record
from app.control.decide.decide import pose_once_reclaimed
from app.control.domain.events import Reason
from app.control.domain.snapshot import SILENT_SECONDS, NodeStatus
from app.control.solve.inline import Inline
from app.manifests.offline import DeclaredFiles
from app.store.world import events
from app.store.world.events import EventFilter
from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.spot import NOTICE_SECONDS, ReclaimRounds, SpotCloud
from simulation.world import read_documents
from tests.simulation.worlds import SETTLING_TICK_SECONDS, document, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

NOTICES = scaled(50, 2)
ROUNDS_TICK_SECONDS = 2.0
PERCENTILE = 0.98  # of every service here
SPOT = tuple(f"spot-{number}" for number in range(5))
RATES = {"a": 900.0, "b": 600.0, "c": 200.0}


def spot_node(name: str) -> dict[str, Any]:
    found = node(name)
    return found | {"spec": found["spec"] | {"purchase": "spot"}}


def world(
    *names: str,
    rates: dict[str, float] = RATES,
    jobs: bool = False,
    own: int = 0,
    lost_after: float = 120.0,
    **more: Any,
) -> DeclaredFiles:
    """Services on spot nodes of two GPUs, and on so many GPUs of our own."""
    documents = [gpu_type(), policy(lostAfterSeconds=lost_after), *(spot_node(name) for name in names or SPOT)]
    documents += [node("own", own)] if own else []
    for name, rate in rates.items():
        documents += [model(name), profile(name, **more), service(name, rate)]
    return read_documents([*documents, *([model("tune"), job()] if jobs else [])])


def job() -> dict[str, Any]:
    pace = {"memoryGib": 2, "stepsPerSecond": {"20": 2.0, "100": 10.0}}
    spec = {"type": "training", "steps": 10**6, "profiles": {"v100-16gb": pace}, "maxPricePerHour": 2}
    return document("Job", "tune", spec, "shop")


def job_nodes(simulation: Simulation) -> set[str]:
    machines = simulation.fleet.nodes.values()
    return {machine.name for machine in machines for copy in machine.alive() if not copy.served}


def status_of(simulation: Simulation, name: str) -> NodeStatus:
    return simulation.planner.store.snapshot(lambda _: {}).nodes[name]


def settle(simulation: Simulation) -> None:
    simulation.advance(250, SETTLING_TICK_SECONDS)
    simulation.advance(1)  # between two cycles
    assert all(simulation.fleet.ready(name) for name in simulation.fleet.declared)


def busiest(simulation: Simulation) -> str:
    spot = [simulation.fleet.nodes[name] for name in SPOT if name in simulation.fleet.nodes]
    return max(spot, key=lambda machine: (len(machine.serving()), machine.name)).name


def serving_elsewhere(simulation: Simulation, name: str) -> int:
    return sum(len(machine.serving()) for machine in simulation.fleet.nodes.values() if machine.name != name)


def told(simulation: Simulation, reason: Reason) -> list[tuple[str, str]]:
    found = simulation.database.read(lambda c: events.recent(c, EventFilter(reasons=[str(reason)]), 100))
    return [(event.name, event.message) for event in found]


@pytest.mark.slow
def test_every_promise_is_kept_through_each_notice(database_url: str) -> None:
    """The node is empty before its machine goes; no service is ever without a copy, and its share within SLO holds."""
    draw = random.Random(7)
    with open_simulation(database_url, world()) as simulation:
        settle(simulation)
        cloud = SpotCloud(simulation)
        for number in range(NOTICES):
            name = busiest(simulation) if number % 2 == 0 else draw.choice(SPOT)
            before = simulation.history.mark(simulation.fleet)
            cloud.give_notice(name)
            for _ in simulation.seconds(NOTICE_SECONDS + 60):
                assert all(simulation.fleet.ready(service) for service in simulation.fleet.declared), number
                if name in [*cloud._due] and simulation.clock.seconds + 2 > cloud._due[name]:
                    assert simulation.fleet.nodes[name].serving() == [], (number, "it should be empty by now")
                cloud.tick()
            shares = count_attained_shares(before, simulation.history.mark(simulation.fleet))
            assert min(shares.values()) >= PERCENTILE, (number, name, shares)
            cloud.give_back(name)
            simulation.advance(float(draw.randint(60, 120)))


@pytest.mark.slow
def test_where_nothing_can_leave_each_service_is_named(database_url: str) -> None:
    with open_simulation(database_url, world("spot-0", rates={"a": 300.0, "b": 200.0})) as simulation:
        settle(simulation)
        SpotCloud(simulation).give_notice("spot-0")
        simulation.advance(2)
        assert {name for name, _ in told(simulation, Reason.RECLAIM_SHORT)} == {"a", "b"}


@pytest.mark.slow
def test_the_answer_comes_at_once_and_can_be_replayed(database_url: str) -> None:
    with open_simulation(database_url, world()) as simulation:
        settle(simulation)
        name = busiest(simulation)
        leaving = {copy.instance for copy in simulation.fleet.nodes[name].serving()}
        SpotCloud(simulation).give_notice(name)
        simulation.advance(2)
        view = simulation.planner.store.view()
        assert view.plan is not None
        assert (view.plan.lane, view.plan.state) == ("fast", "rolling")
        assigned = {line.id for wanted in view.assigned.values() for line in wanted.instances}
        assert leaving <= assigned, "the old copies serve until the new ones do"
        target = {line.id for line in view.target[name].instances} if name in view.target else set()
        assert not target & leaving
        generation = view.plan.generation
        record = simulation.database.read(lambda c: record_of(c, generation))
        assert record is not None
        assert replay(read_record(write_record(record)), Inline()).is_identical


@pytest.mark.slow
def test_a_plan_that_leaves_everything_on_the_node_serves_less_than_the_one_that_moves_it(database_url: str) -> None:
    with open_simulation(database_url, world()) as simulation:
        settle(simulation)
        store = simulation.planner.store
        before = store.snapshot(lambda _: {})
        assert pose_once_reclaimed(before, before.in_force) is None, "there is no notice"
        SpotCloud(simulation).give_notice(busiest(simulation))
        simulation.advance(2)
        snapshot = store.snapshot(lambda _: {})
        stays, moves = (pose_once_reclaimed(snapshot, desired) for desired in (before.in_force, snapshot.in_force))
        assert stays is not None
        assert stays.plan_in_force.unserved
        assert moves is not None
        assert not moves.plan_in_force.unserved


@pytest.mark.slow
def test_copies_that_start_too_slowly_start_at_once_and_their_services_are_named(database_url: str) -> None:
    with open_simulation(database_url, world(startSeconds=100)) as simulation:
        simulation.advance(370, SETTLING_TICK_SECONDS)
        simulation.advance(1)
        name = busiest(simulation)
        before = {line.id for wanted in simulation.planner.store.view().assigned.values() for line in wanted.instances}
        leaving = {copy.service for copy in simulation.fleet.nodes[name].serving()}
        cloud = SpotCloud(simulation)
        cloud.give_notice(name, 60)
        simulation.advance(3)
        assert {service for service, _ in told(simulation, Reason.RECLAIM_SHORT)} == {
            service.split("/")[1] for service in leaving
        }
        _, message = told(simulation, Reason.RECLAIM_SHORT)[0]
        assert message.startswith(f"its copies take 100 s to start, and node {name} is reclaimed in ")
        assigned = simulation.planner.store.view().assigned
        begun = {line.owner for wanted in assigned.values() for line in wanted.instances if line.id not in before}
        assert begun >= leaving


@pytest.mark.slow
def test_without_room_as_much_moves_as_fits_and_the_rest_serves_to_the_end(database_url: str) -> None:
    with open_simulation(database_url, world("spot-0", "spot-1", own=1)) as simulation:
        settle(simulation)
        name = busiest(simulation)
        before, others = simulation.history.mark(simulation.fleet), serving_elsewhere(simulation, name)
        cloud = SpotCloud(simulation)
        cloud.give_notice(name)
        simulation.advance(NOTICE_SECONDS - 2)
        assert serving_elsewhere(simulation, name) > others, "what fits has moved"
        assert simulation.fleet.nodes[name].serving(), "something stays, for want of another place"
        shares = count_attained_shares(before, simulation.history.mark(simulation.fleet))
        assert min(shares.values()) >= PERCENTILE
        short = told(simulation, Reason.RECLAIM_SHORT)
        assert short
        assert all(message.startswith(f"without node {name}, ") for _, message in short)
        simulation.advance(40)
        assert told(simulation, Reason.DRAIN_STUCK)


@pytest.mark.slow
def test_after_the_deadline_a_silent_node_is_gone_at_once(database_url: str) -> None:
    with open_simulation(database_url, world(lost_after=900.0)) as simulation:
        settle(simulation)
        name = busiest(simulation)
        cloud = SpotCloud(simulation)
        cloud.give_notice(name, 30)
        for _ in simulation.seconds(30 + SILENT_SECONDS + 15):
            cloud.tick()
        assert [node for node, _ in told(simulation, Reason.NODE_RECLAIMED)] == [name]
        assert told(simulation, Reason.NODE_LOST) == []


@pytest.mark.slow
def test_a_node_that_is_still_there_stays_empty_until_the_notice_is_withdrawn(database_url: str) -> None:
    with open_simulation(database_url, world("spot-0", "spot-1", "spot-2", "spot-3")) as simulation:
        settle(simulation)
        name = busiest(simulation)
        cloud = SpotCloud(simulation)
        cloud.give_notice(name, 30)
        simulation.advance(300)
        assert simulation.fleet.nodes[name].alive() == []
        facts = status_of(simulation, name)
        assert (facts.state, facts.draining_gpus) == ("reporting", (0, 1))
        cloud.give_back(name)
        simulation.advance(60)
        facts = status_of(simulation, name)
        assert (facts.draining_gpus, facts.reclaimed_at) == ((), None)


@pytest.mark.slow
def test_a_job_leaves_with_what_it_has_done_in_the_same_step_as_services(database_url: str) -> None:
    with open_simulation(
        database_url, world("spot-0", "spot-1", "spot-2", rates={"a": 200.0}, jobs=True)
    ) as simulation:
        settle(simulation)
        (name,) = job_nodes(simulation)
        cloud = SpotCloud(simulation)
        cloud.give_notice(name)
        simulation.advance(2)
        view = simulation.planner.store.view()
        assert view.plan is not None
        assert view.plan.lane == "fast"
        placed = {node for node, wanted in view.target.items() for line in wanted.instances if line.job}
        assert placed and name not in placed, "the least change places the job elsewhere"
        generation = view.plan.generation
        record = simulation.database.read(lambda connection: record_of(connection, generation))
        assert record is not None
        assert replay(read_record(write_record(record)), Inline()).is_identical
        for _ in simulation.seconds(NOTICE_SECONDS - 7):
            cloud.tick()
        (other,) = job_nodes(simulation)
        assert other != name
        assert simulation.fleet.nodes[name].alive() == []


@pytest.mark.soak  # half an hour; its figures: tests/simulation/measure/test_run.py, in less
def test_rounds_of_notices_reclaim_nodes_and_give_them_back(database_url: str) -> None:
    """Every four minutes one of five nodes goes and is back ten minutes later; the seed decides which."""
    with open_simulation(database_url, world(rates={"a": 300.0, "b": 200.0, "c": 100.0})) as simulation:
        rounds, gone = ReclaimRounds(simulation, 240.0, seed=3), set[str]()
        for now in simulation.seconds(1700, ROUNDS_TICK_SECONDS):
            rounds.tick()
            off = {name for name in SPOT if simulation.fleet.nodes[name].is_off}
            gone |= off
            assert len(off) <= (0 if now < 360 else 3)
        assert len(gone) >= 3
        figures = rounds.figures()
    assert figures["notices"] == 7
    assert figures["emptied"] == 6, "the last machine is still there"
    assert figures["short"] == 0
