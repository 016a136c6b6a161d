"""A GPU where steps failed takes nothing new for a while, and what runs there stays as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

from app.control.decide.assigning import assign_plan
from app.control.domain.snapshot import NodeStatus, Rest, Snapshot
from app.control.formulate.failed_places import avoid_failed_places, close_failed_places
from app.control.formulate.formulate import formulate
from tests.app.control.decide.test_choosing import SERVICES, plan, world
from tests.solvers.planning.random_problems import NOON

UNTIL = NOON + timedelta(minutes=1)
RUNNING = replace(
    world(SERVICES), in_force=assign_plan(world(SERVICES), formulate(world(SERVICES)), plan(Random(1), SERVICES, True))
)


def closed_gpus(rests: dict[str, Rest]) -> dict[str, tuple[int, ...]]:
    nodes = close_failed_places(replace(RUNNING, resting=rests)).nodes
    return {name: facts.resting_gpus for name, facts in nodes.items() if facts.resting_gpus}


def test_the_gpu_of_a_rest_is_closed_or_its_node_and_nothing_for_a_rest_everywhere() -> None:
    assert closed_gpus({"shop/a": Rest(UNTIL, (("n1", 1),))}) == {"n1": (1,)}
    assert closed_gpus({"shop/a": Rest(UNTIL, (("n1", 1),)), "shop/b": Rest(UNTIL, (("n2", 0),))}) == {
        "n1": (1,), "n2": (0,),
    }  # fmt: skip
    assert closed_gpus({"shop/a": Rest(UNTIL, (("n1", 0), ("n1", 1)))}) == {"n1": (0, 1)}
    assert closed_gpus({"shop/a": Rest(UNTIL, (("n1", 0), ("n2", 1)))}) == {}
    assert closed_gpus({"shop/a": Rest(UNTIL)}) == {}


def test_nothing_is_closed_for_a_service_or_a_node_that_is_gone() -> None:
    for rests in ({"shop/gone": Rest(UNTIL, (("n1", 1),))}, {"shop/a": Rest(UNTIL, (("gone", 0),))}, {}):
        snapshot = replace(RUNNING, resting=rests)
        assert close_failed_places(snapshot) is snapshot


def test_a_closed_gpu_is_not_in_the_problem_and_what_runs_there_is_pinned() -> None:
    node, wanted = next((node, wanted) for node, wanted in sorted(RUNNING.in_force.items()) if wanted.instances)
    gpu = wanted.instances[0].gpu
    question = formulate(close_failed_places(replace(RUNNING, resting={"shop/a": Rest(UNTIL, ((node, gpu),))})))
    assert gpu not in question.problem.nodes[node].gpus
    assert question.pinned == tuple((node, line) for line in wanted.instances if line.gpu == gpu)
    status = NodeStatus(node, "reporting", failed_gpus=(1,), cordoned_gpus=(2,), draining_gpus=(3,), resting_gpus=(4,))
    assert status.closed_gpus == {1, 2, 3, 4}


def closed_places(snapshot: Snapshot) -> dict[str, list[int]]:
    return {name: list(facts.resting_gpus) for name, facts in sorted(snapshot.nodes.items()) if facts.resting_gpus}


def test_where_several_gpus_of_a_node_failed_the_node_is_avoided_first_and_then_those_gpus_alone() -> None:
    failed = {"shop/a": (("n1", 0), ("n1", 1), ("n2", 1)), "shop/b": (("n2", 0),)}
    four = tuple(
        replace(item, spec={**item.spec, "gpus": 4}) if item.kind == "Node" else item for item in RUNNING.declared
    )
    snapshot = replace(RUNNING, declared=four, failed_places=failed)
    closed = [closed_places(around) for around in avoid_failed_places(snapshot, ["shop/a"])]
    assert closed == [{"n1": [0, 1, 2, 3], "n2": [1]}, {"n1": [0, 1], "n2": [1]}]
    (one,) = avoid_failed_places(snapshot, ["shop/b"])
    assert closed_places(one) == {"n2": [0]}
    resting = close_failed_places(replace(snapshot, resting={"shop/b": Rest(UNTIL, (("n2", 0),))}))
    *_, both = avoid_failed_places(resting, ["shop/a"])
    assert closed_places(both) == {"n1": [0, 1], "n2": [0, 1]}, "what is closed for a rest stays closed"
