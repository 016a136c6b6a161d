"""Proofs of fleets whose nodes are billed whole equal brute force and the cross-check, and their plans are right."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.crosscheck import TOLERANCE_SHARE, cross_check
from solvers.planning import exact
from solvers.planning.judge import judge
from solvers.planning.plan import Unserved
from solvers.planning.problem import Job, JobProfile, Node, PlacedJob, Problem, RunningState, gpu_indexes
from solvers.planning.replay import replay_plan
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find
from tests.solvers.planning.exact.test_exact import plan_of
from tests.solvers.planning.small_fleets import fleets, least_cost
from tests.support.soak import scaled

WORK = 5.0  # of the cross-check
STEPS = 20_000  # of the exact search
PRICINGS: tuple[Literal["gpu", "node"], ...] = ("gpu", "node", "node", "node")
SIZES = {"old": [(2,), (2, 2), (1, 2), (3, 2)], "big": [(), (1,), (2,)]}  # GPUs of the nodes of a kind


@st.composite
def fleets_of_nodes(draw: st.DrawFn) -> Problem:
    """Small fleets with several nodes of a kind; most of them are billed whole."""
    problem = draw(fleets(pricing="node"))
    nodes = dict[str, Node]()
    for kind, sizes in SIZES.items():
        price = 1.0 if kind == "old" else 3.0
        for number, size in enumerate(draw(st.sampled_from(sizes))):
            name, pricing = f"n-{kind}-{number}", draw(st.sampled_from(PRICINGS))
            nodes[name] = Node(name, kind, gpu_indexes(size), 64, 512, price, pricing=pricing)
    return replace(problem, nodes=nodes)


def is_near(cost: float, other: float) -> bool:
    return abs(cost - other) <= TOLERANCE_SHARE * max(1.0, other)


few = settings(max_examples=scaled(150, 8), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@few
@given(fleets_of_nodes())
def test_exact_is_brute_force_and_the_cross_check_and_its_plan_is_right(problem: Problem) -> None:
    least, checked = least_cost(problem), cross_check(problem, WORK)
    assert exact.applies(tables(problem))
    proofs = list(exact.prove(tables(problem), STEPS))
    assert max(proof.bound for proof in proofs) <= checked.cost * (1 + TOLERANCE_SHARE)
    if least == inf:  # some of what can be served would have to be left out, which the search does not prove
        return
    proof = proofs[-1]
    assert proof.proved and proof.placed is not None
    assert proof.bound == pytest.approx(least)
    assert checked.is_proved and is_near(proof.bound, checked.cost)
    plan = plan_of(tables(problem), proof.placed)
    served = {instance.service for instance in plan.instances}
    lost = tuple(Unserved(name, s.rate_per_second) for name, s in problem.services.items() if name not in served)
    verdict = judge(problem, replace(plan, unserved=lost), simulate=False)
    assert not verdict.violations
    assert verdict.cost.total == pytest.approx(least)


def in_large_nodes(problem: Problem) -> Problem:
    """Returns the same GPUs, all of a type on one node that is billed whole."""
    nodes = dict[str, Node]()
    for kind in sorted({node.gpu_type for node in problem.nodes.values()}):
        of = [node for node in problem.nodes.values() if node.gpu_type == kind]
        gpus = sum(node.gpu_count for node in of)
        cores, hosted = sum(node.cpu_cores for node in of), sum(node.host_memory_gib for node in of)
        nodes[kind] = Node(kind, kind, gpu_indexes(gpus), cores, hosted, of[0].price_per_hour, pricing="node")
    return replace(problem, nodes=nodes)


@pytest.mark.slow
def test_a_plan_on_nodes_billed_whole_is_proved_and_found_again() -> None:
    problem = in_large_nodes(family("A", 8, 4, 1, 0.5))
    solved = find(problem, SolveBudget(None, 40), alone=True)
    certificate = solved.plan.certificate
    assert certificate and certificate.method == "exact; proved"
    assert certificate.bound == pytest.approx(certificate.cost.total)
    again = replay_plan(problem, 0, solved.work, is_exact=True)
    assert [line.place for line in again.instances] == [line.place for line in solved.plan.instances]


def test_what_one_gpu_serves_leaves_the_others_of_its_node_empty() -> None:
    problem = in_large_nodes(family("A", 8, 1, 1, 0.05))
    proof = list(exact.prove(tables(problem), STEPS))[-1]
    assert proof.proved and proof.placed is not None
    assert len(set(proof.placed.gpu.tolist())) == 1


def test_a_fleet_is_not_searched_where_gpus_of_a_node_billed_whole_have_different_caps() -> None:
    problem = in_large_nodes(family("A", 8, 4, 1))
    name, node = max(problem.nodes.items(), key=lambda item: item[1].gpu_count)
    most_w = problem.gpu_types[name].max_w
    for caps_w, applies in (((most_w,) * node.gpu_count, True), ((most_w / 2, *(most_w,) * node.gpu_count), False)):
        capped = replace(node, caps_w=caps_w[: node.gpu_count])
        assert exact.applies(tables(replace(problem, nodes={**problem.nodes, name: capped}))) == applies


@pytest.mark.parametrize("pricing", ["gpu", "node"])
def test_a_proved_plan_leaves_its_gpu_to_a_job_that_must_stay(pricing: Literal["gpu", "node"]) -> None:
    problem = family("A", 8, 1, 1, 0.05)
    kind = "t4-16gb"
    nodes = {name: Node(name, kind, gpu_indexes(2), 64, 512, 0.5, pricing=pricing) for name in ("a", "b")}
    job = Job("lab/j", "lab", "training", 1e6, {kind: JobProfile(((50, 1.0), (100, 2.0)), 8.0)}, is_preemptible=False)
    running = RunningState(datetime(2026, 12, 1, tzinfo=UTC), (), (PlacedJob("lab/j", "a", 0, 100, 8.0),))
    problem = replace(problem, nodes=nodes, jobs={"lab/j": job}, state=running)
    plan = find(problem, SolveBudget(None, 10), alone=True).plan
    assert plan.certificate and plan.certificate.method.startswith("exact; proved")
    assert plan.certificate.bound == pytest.approx(plan.certificate.cost.total)
    assert [placed.place for placed in plan.jobs] == [("a", 0)]
    assert ("a", 0) not in {line.place for line in plan.instances}
    proof = list(exact.prove(tables(problem), STEPS))[-1]
    assert proof.placed is None and not proof.proved
