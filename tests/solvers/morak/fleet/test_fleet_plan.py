"""Morak plans a fleet: splits by the exact search within caps and budget, steady splits, and new ones at request."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import pytest

from app.control.formulate.problem import build_problem
from simulation.world import read_files
from solvers.morak.fleet import plan
from solvers.morak.fleet.items import MorakItems
from solvers.morak.power import share_at_knee
from solvers.morak.power.options import enumerate_options
from solvers.planners.ask import judge_draft
from solvers.planning.availability import UsedLoad
from solvers.planning.fleet.offers import GpuPool
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import GpuType, Instance, Knowledge, PlacedJob, Problem, RunningState
from tests.solvers.hetsev.fleet.fleets import fleet

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
TESTBED = build_problem(read_files(Path(__file__).parents[4] / "lab" / "testbeds" / "morak.yaml"))
KINDS = {name: replace(kind, max_w=115.0) for name, kind in TESTBED.gpu_types.items()}  # a cap that binds
PAPER = replace(TESTBED, gpu_types=KINDS)
FEW = PlannerBudget(work=20)


def planned(
    problem: Problem, before: Plan | None = None, knowledge: Knowledge | None = None, **state: object
) -> tuple[Plan, PlannerDraft]:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    running = RunningState(NOON, before.instances if before else (), before.jobs if before else ())
    problem = replace(problem, state=replace(running, **state))  # type: ignore[arg-type]
    draft = plan(problem, knowledge or {}, FEW)
    return judge_draft(problem, "morak", draft)[0], draft


def splits(made: Plan) -> dict[str, tuple[str, int, int]]:
    return {line.id: (line.node, line.gpu, line.sm_percent) for line in made.instances}


def scaled(problem: Problem, times: float) -> Problem:
    return problem.change_rates({name: times * service.rate_per_second for name, service in problem.services.items()})


def clocks(made: Plan) -> list[float]:
    return [line.clock_mhz for line in made.instances]


def test_the_papers_server_serves_all_four_networks_under_its_caps() -> None:
    made, draft = planned(PAPER)
    assert not draft.unserved
    assert {line.service for line in made.instances} == set(PAPER.services)
    assert len({line.place for line in made.instances}) < len(made.instances)  # networks share GPUs
    assert max(clocks(made)) < PAPER.gpu_types["rtx-2080-ti-11gb"].top_clock_mhz  # where a full GPU exceeds its cap


def test_a_service_that_keeps_a_part_of_its_load_for_a_lost_node_has_times_of_its_own() -> None:
    name, service = next(iter(PAPER.services.items()))
    half = replace(service, name="half", used_load=UsedLoad(0.5))
    problem = replace(PAPER, services={name: service, half.name: half})
    items = MorakItems(problem, FleetRooms(problem, (), ()).pools[0])
    whole, part = (items.tables(items.knees[each], {each: inf}).exec_ms for each in (name, half.name))
    assert (part >= whole).all()
    assert (part > whole).any()


@pytest.mark.slow
def test_what_runs_keeps_its_shares_while_batches_and_clocks_follow_the_load() -> None:
    first, _ = planned(PAPER)
    again, draft = planned(PAPER, first)
    assert again.instances == first.instances
    assert draft.method.endswith("clocks and batches kept")
    less, _ = planned(scaled(PAPER, 0.6), first)
    assert splits(less).items() <= splits(first).items()
    assert sum(clocks(less)) / len(clocks(less)) < sum(clocks(first)) / len(clocks(first))


@pytest.mark.slow
def test_a_risen_load_adds_instances_and_a_fallen_one_stops_them() -> None:
    first, _ = planned(scaled(PAPER, 0.3))
    risen, _ = planned(PAPER, first)
    assert splits(first).items() <= splits(risen).items()
    assert len(risen.instances) > len(first.instances)
    fallen, _ = planned(scaled(PAPER, 0.1), risen)
    assert len(fallen.instances) < len(risen.instances)


def test_a_budget_of_watts_lowers_clocks_before_it_leaves_load_unserved() -> None:
    problem = scaled(PAPER, 0.5)
    idle_w = sum(PAPER.type_of(name).idle_w * len(node.gpus) for name, node in PAPER.nodes.items())
    free, _ = planned(replace(problem, policy=replace(problem.policy, power_budget_w=None)))
    tight, draft = planned(replace(problem, policy=replace(problem.policy, power_budget_w=idle_w + 120)))
    assert sum(clocks(tight)) / len(clocks(tight)) < sum(clocks(free)) / len(clocks(free))
    assert tight.instances
    none, draft = planned(replace(problem, policy=replace(problem.policy, power_budget_w=idle_w + 1)))
    assert not none.instances
    assert "powerBudgetW" in draft.unserved[0].reason


def test_a_lower_cap_lowers_the_clock() -> None:
    def capped(watts: float) -> Problem:
        kinds = {name: replace(kind, max_w=watts) for name, kind in PAPER.gpu_types.items()}
        return replace(scaled(PAPER, 2.0), gpu_types=kinds)

    high, low = planned(capped(250.0))[0], planned(capped(100.0))[0]
    assert max(clocks(low)) < max(clocks(high))
    assert sum(line.rate_per_second for line in low.instances) < sum(line.rate_per_second for line in high.instances)


@pytest.mark.slow
def test_a_gpu_that_may_draw_less_than_it_does_is_divided_anew_once() -> None:
    first, _ = planned(PAPER)
    place = first.instances[0].place
    there = {line.id: line.sm_percent for line in first.instances if line.place == place}
    node = PAPER.nodes[place[0]]
    kind = PAPER.type_of(place[0])
    caps_w = [kind.max_w if gpu != place[1] else kind.idle_w + 0.5 * (kind.max_w - kind.idle_w) for gpu in node.gpus]
    less = replace(PAPER, nodes={**PAPER.nodes, place[0]: replace(node, caps_w=tuple(caps_w))})
    divided, draft = planned(less, first)
    assert "1 GPU divided again" in draft.method
    assert {line.id: line.sm_percent for line in divided.instances if line.place == place} != there
    others = {key: value for key, value in splits(first).items() if value[:2] != place}
    assert others.items() <= splits(divided).items()
    _, next_draft = planned(less, divided)
    assert "divided" not in next_draft.method


def test_instances_that_must_be_there_are_on_gpus_of_their_own() -> None:
    made, _ = planned(fleet(rate=50.0, min_instances=3))
    for name in ("shop/a", "shop/b"):
        assert len({line.place for line in made.instances if line.service == name}) >= 3


def test_a_dedicated_service_has_its_gpus_alone() -> None:
    made, _ = planned(fleet(rate=100.0, is_dedicated=True))
    places: list[Instance] = list(made.instances)
    assert len({line.place for line in places}) == len(places)


def test_an_slo_that_no_gpu_keeps_is_said_so() -> None:
    _, draft = planned(fleet(rate=100.0, slo_ms=5))
    assert {entry.reason for entry in draft.unserved} == {
        "no GPU type of the fleet keeps its SLO in any profiled shape"
    }


@pytest.mark.parametrize("kind", PAPER.gpu_types.values())
def test_shares_come_from_knees_and_measurements(kind: GpuType) -> None:
    made, _ = planned(PAPER)
    for line in made.instances:
        profile = PAPER.profile(line.service, line.variant, line.node)
        assert profile
        assert profile.gpu_type == kind.name
        curves = profile.latency_ms.values()
        allowed = {share_at_knee(curve) for curve in curves} | {sm for curve in curves for sm, _ in curve}
        assert line.sm_percent in allowed


def test_a_job_runs_on_where_no_service_has_a_profile() -> None:
    problem = build_problem(read_files(Path(__file__).parents[4] / "lab" / "testbeds" / "mudi.yaml"))
    job = next(iter(problem.jobs.values()))
    node = next(node for node in problem.nodes.values() if node.gpu_type in job.profiles)
    sm_percent = job.profiles[node.gpu_type].units_per_second[0][0]
    runs = PlacedJob(job.name, node.name, node.gpus[0], sm_percent, 1.0)
    problem = replace(problem, profiles={}, state=RunningState(NOON, (), (runs,)))
    draft = plan(problem, {}, FEW)
    assert not draft.instances
    assert {line.service for line in draft.unserved} == set(problem.services)


@pytest.mark.parametrize("share", [0.1, 0.4, inf])
def test_the_best_split_alone_is_the_last_of_all_splits_at_less_work(share: float) -> None:
    (pool,) = {GpuPool.of(PAPER, (name, gpu)) for name, node in PAPER.nodes.items() for gpu in node.gpus}
    items = MorakItems(PAPER, pool)
    wanted = {name: share * service.rate_per_second for name, service in PAPER.services.items()}
    fixed = items.knees[next(iter(PAPER.services))][:1]
    new = items.sort_by_worth([item for found in items.shares.values() for item in found], wanted)
    table = items.tables((*fixed, *new), wanted)
    every, best = (enumerate_options(table, 115.0, 5, 10**6, (0,), only_best=only) for only in (False, True))
    assert every
    assert best
    assert best[0][-1].worth_per_second == every[0][-1].worth_per_second > 0
    assert best[0][-1].watts == pytest.approx(every[0][-1].watts)
    assert best[1] < every[1]  # sets examined
