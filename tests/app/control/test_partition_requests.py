"""A node that cannot keep a GPU's limits by clock and batch gets another plan for it, whoever plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import fsum
from pathlib import Path

import pytest

from app.control.formulate.formulate import formulate
from app.control.formulate.reserved_watts import RESERVED_SHARE
from app.control.observe.observer import Observer
from app.store.world import events
from app.store.world.events import EventFilter
from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.world import put, read_documents, read_store, truth_of
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down, watts
from solvers.planning.problem import Place
from tests.simulation.worlds import gpu_type, model, node, policy, profile, service, small
from tests.support.whole_node import make_whole_nodes

pytestmark = pytest.mark.slow

CYCLE_SECONDS, TICK_SECONDS = 15, 5.0
SETTLED_SECONDS, ANSWERED_SECONDS = 150.0, 10.0 + 2 * CYCLE_SECONDS  # a report comes every ten seconds
HALF_AN_HOUR_SECONDS = 1800.0
IDLE_W = 40.0


def planned_watts(simulation: Simulation) -> dict[Place, float]:
    """Returns the watts of each GPU that the plan uses, all busy, idle ones included."""
    assert simulation.last
    assert simulation.last.snapshot
    target = simulation.planner.store.view().target
    question = formulate(replace(simulation.last.snapshot, in_force=target, assigned=None))
    problem, plan, found = question.problem, question.plan_in_force, {}
    assert not plan.unserved
    for place, gpu in gpus_with(problem, plan.instances, plan.jobs).items():
        slow_down(gpu, problem.policy)
        found[place] = fsum([gpu.type.idle_w, *(watts(line, gpu) for line in gpu.residents)])
    return found


def declare_cap(simulation: Simulation, place: Place, cap_w: float, gpus: int = 2) -> None:
    """Declares that a GPU may draw no more than it does; its neighbours may draw what their type allows."""
    declared = node(place[0], gpus)
    declared["spec"]["capW"] = [cap_w if gpu == place[1] else 300.0 for gpu in range(gpus)]
    put(simulation.database, read_documents([gpu_type(), declared]))
    simulation.fleet.follow(truth_of(simulation.database.read(read_store)))


def reasons(simulation: Simulation, name: str) -> list[str]:
    found = simulation.database.read(lambda c: events.recent(c, EventFilter(kind="Node", name=name)))
    return [event.reason for event in found]


@pytest.mark.parametrize("planner", ["joint", "hetsev", "mudi", "inss", "morak", "oltunes"])
def test_a_request_for_another_partition_is_answered_within_two_cycles(database_url: str, planner: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), planner=planner, cycleSeconds=CYCLE_SECONDS)
    with open_simulation(database_url, world) as simulation:
        simulation.advance(SETTLED_SECONDS, TICK_SECONDS)
        place, drawn = max(planned_watts(simulation).items(), key=lambda item: item[1])
        declare_cap(simulation, place, drawn + 0.01)
        simulation.advance(SETTLED_SECONDS, TICK_SECONDS)
        assert planned_watts(simulation)[place] == pytest.approx(drawn, rel=0.02)
        simulation.fleet.nodes[place[0]].repartition = (place[1],)
        simulation.advance(ANSWERED_SECONDS, TICK_SECONDS)
        most_w = IDLE_W + (1 - RESERVED_SHARE) * (drawn + 0.01 - IDLE_W)
        assert planned_watts(simulation).get(place, 0.0) <= most_w * (1 + 1e-6)
        target = simulation.planner.store.view().target.get(place[0])
        caps = {gpu.index: gpu.cap_w for gpu in target.gpus} if target else {}
        assert caps.get(place[1], drawn) == pytest.approx(drawn, abs=0.02)  # the agent's own limit stays
        assert "watts_reserved" in reasons(simulation, place[0])


def requests(simulation: Simulation, name: str) -> tuple[tuple[int, int], ...]:
    """Returns the requests of a node that a planner knows which has just taken over."""
    snapshot = simulation.database.read(lambda c: Observer().snapshot(c, 0, lambda _: {}))
    return snapshot.nodes[name].partition_requests


def test_a_request_is_remembered_for_an_hour_by_any_planner_that_leads(database_url: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), cycleSeconds=CYCLE_SECONDS)
    with open_simulation(database_url, world) as simulation:
        simulation.advance(SETTLED_SECONDS, TICK_SECONDS)
        asking, found = simulation.fleet.nodes["node-0"], list[tuple[int, int]]()
        for gpus, seconds in (((1,), 240.0), ((), 240.0), ((1,), 120.0), ((), HALF_AN_HOUR_SECONDS)):
            asking.repartition = gpus
            simulation.advance(seconds, CYCLE_SECONDS)
            found += requests(simulation, "node-0")
        assert found == [(1, 1), (1, 1), (1, 2), (1, 2)]  # five minutes in all, and another answer
        assert "watts_released" not in reasons(simulation, "node-0")
        simulation.advance(HALF_AN_HOUR_SECONDS + ANSWERED_SECONDS, CYCLE_SECONDS)
        assert requests(simulation, "node-0") == ()
        assert "watts_released" in reasons(simulation, "node-0")


def test_a_node_that_goes_away_while_it_asks_is_due_no_more_answers_once_it_is_back(database_url: str) -> None:
    world = small(gpus=4, rates=(60.0, 50.0), cycleSeconds=CYCLE_SECONDS)
    with open_simulation(database_url, world) as simulation:
        simulation.advance(SETTLED_SECONDS, TICK_SECONDS)
        simulation.fleet.nodes["node-0"].repartition = (1,)
        simulation.advance(SETTLED_SECONDS, CYCLE_SECONDS)
        simulation.post.silence(["node-0"])
        simulation.advance(HALF_AN_HOUR_SECONDS, CYCLE_SECONDS)
        assert requests(simulation, "node-0") == ((1, 1),)
        simulation.fleet.nodes["node-0"].repartition = ()
        simulation.post.silence(["node-0"], "as usual")
        simulation.advance(ANSWERED_SECONDS, TICK_SECONDS)
        assert requests(simulation, "node-0") == ((1, 1),)


def test_nodes_that_draw_more_than_their_profiles_say_ask_and_keep_their_slos_again(
    database_url: str, tmp_path: Path
) -> None:
    declared = [node(f"node-{number}", 1) for number in range(6)]
    for each in declared:
        each["spec"]["capW"] = 98.0  # at 40 % of its SMs a GPU draws 97 W by the profile, and 144 W
    world = [gpu_type(), policy(cycleSeconds=CYCLE_SECONDS), *declared]
    for name, rate in (("a", 200.0), ("b", 150.0)):
        world += [model(name), profile(name, powerW={"10": 30, "100": 112}), service(name, rate)]
    with open_simulation(database_url, read_documents(world), make_node=make_whole_nodes(tmp_path)) as simulation:
        marks = [simulation.history.mark(simulation.fleet)]
        for _ in range(2):
            simulation.advance(200.0)
            marks.append(simulation.history.mark(simulation.fleet))
        assert simulation.last
        assert simulation.last.snapshot
        asked = [facts.name for facts in simulation.last.snapshot.nodes.values() if facts.partition_requests]
        assert len(asked) >= 2  # by their own power loops
        drawn = planned_watts(simulation)
        most_w = IDLE_W + (1 - RESERVED_SHARE) * (98.0 - IDLE_W)
        assert all(drawn[place] <= most_w * (1 + 1e-6) for place in drawn if place[0] in asked)
        early, late = (count_attained_shares(*pair) for pair in pairwise(marks))
        assert max(early.values()) < 0.95
        assert min(late.values()) >= 0.98


def test_no_load_goes_unserved_for_watts_in_reserve(database_url: str) -> None:
    rules = policy(planner="hetsev", cycleSeconds=CYCLE_SECONDS)
    world = read_documents([gpu_type(), rules, node("node-0", 1), model("a"), profile("a"), service("a", 60.0)])
    with open_simulation(database_url, world) as simulation:
        simulation.advance(SETTLED_SECONDS, TICK_SECONDS)
        before = planned_watts(simulation)
        (place,) = before
        declare_cap(simulation, place, before[place] + 0.01, gpus=1)
        simulation.fleet.nodes["node-0"].repartition = (0,)
        simulation.advance(SETTLED_SECONDS, TICK_SECONDS)
        assert requests(simulation, "node-0") == ((0, 1),)
        assert planned_watts(simulation) == pytest.approx(before)
