"""A GPU where steps failed takes nothing new for a while, and what runs there stays as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

from app.control.decide.assigning import desired_of
from app.control.domain.snapshot import NodeStatus, Rest
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from tests.app.control.decide.test_choosing import SERVICES, plan, world
from tests.solvers.planning.random_problems import NOON

UNTIL = NOON + timedelta(minutes=1)
RUNNING = replace(
    world(SERVICES), in_force=desired_of(world(SERVICES), formulate(world(SERVICES)), plan(Random(1), SERVICES, True))
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
    assert NodeStatus(node, "reporting", (1,), (2,), (3,), (4,)).closed_gpus == {1, 2, 3, 4}
