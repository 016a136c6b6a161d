"""Nodes name their GPUs by their own indexes, of which some may be missing."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

from solvers.planning.judge import judge
from solvers.planning.problem import Node, WrongProblem, gpu_indexes
from tests.solvers.planning.small_world import instance, plan, problem


def node(gpus: tuple[int, ...]) -> Node:
    return Node("n", "big", gpus, 16, 64, 2.0)


def test_a_node_has_the_gpus_that_it_names() -> None:
    known = node((1, 3))
    assert known.gpu_count == 2
    assert [index for index in (-1, 0, 0.5, 1, 1.0, 2, 3, 4, 1e12, nan) if known.has_gpu(index)] == [1, 1.0, 3]


def test_nodes_of_one_size_share_their_indexes() -> None:
    assert gpu_indexes(4) == (0, 1, 2, 3)
    assert gpu_indexes(4) is gpu_indexes(4)


@pytest.mark.parametrize("gpus", [(1, 0), (0, 0), (-1, 0)])
def test_indexes_that_do_not_rise_from_0_are_refused(gpus: tuple[int, ...]) -> None:
    with pytest.raises(WrongProblem, match="indexes from 0 that rise are needed"):
        node(gpus)


def test_the_judge_names_the_gpus_that_are_there() -> None:
    world = problem()
    holes = replace(world, nodes={**world.nodes, "n3": replace(world.nodes["n3"], gpus=(1, 2, 3, 6))})
    astray = replace(plan(), instances=(*plan().instances, instance("shop/search", "n3", 4)))
    sentences = {violation.rule: violation.sentence for violation in judge(holes, astray).violations}
    assert sentences["gpu_exists"] == "node n3 has no GPU 4; it has 1..3, 6"
