"""A fleet with language models in the control plane: planned, assigned, read back, kept, explained and paid for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from app.control.answer.explain.instance import why_instance
from app.control.answer.explain.service import describe_service, why_service
from app.control.answer.explain.shares import costs_of_services
from app.control.answer.savings.baselines import plan_costs
from app.control.decide.assigning import assign_plan
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.running import running_plan
from app.control.formulate.tenants.demand import sum_use_by_service, sum_use_of_assigned
from app.control.record.encoding import join_snapshot, snapshot_parts
from app.control.rollout.changes import same_process
from app.control.solve.inline import Inline
from app.control.tell.rates import cost_rates
from app.manifests.model import Kind
from app.manifests.offline import load
from solvers.planning.judge import judge
from solvers.planning.plan import Plan

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[4] / "examples" / "language-models.yaml"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@cache
def world() -> Snapshot:
    """The example, with both nodes reporting."""
    found = load([FILE])
    declared = [DeclaredObject(str(m.kind), m.tenant, m.name, m.spec) for m in found.manifests.values()]
    return Snapshot(
        at=NOON, epoch=1, nodes={name: NodeStatus(name, "reporting") for name in ("a1", "h1")},
        declared=tuple(sorted(declared, key=lambda item: (item.kind, item.tenant, item.name))),
        expected={
            f"{m.tenant}/{m.name}": ExpectedLoad(float(m.spec["ratePerSecond"])) for m in found.of(Kind.SERVICE)
        },
    )  # fmt: skip


@cache
def planned() -> tuple[Snapshot, Plan]:
    """The snapshot in which the plan is in force, and the plan."""
    question = formulate(world())
    plan = Inline().solve(question.problem, seconds=0, work=4).plan
    assert plan
    desired = assign_plan(world(), question, plan)
    recorded = msgspec.json.decode(msgspec.json.encode(desired), type=dict[str, NodeDesired])
    assert recorded == desired
    return replace(world(), in_force=recorded, assigned={}), plan


def test_an_assignment_lists_all_gpus_of_an_instance_and_sets_each_of_them() -> None:
    snapshot, plan = planned()
    wide = [line for line in plan.instances if line.gpus]
    assert wide
    for line in wide:
        wanted = snapshot.in_force[line.node]
        (assigned,) = [instance for instance in wanted.instances if instance.all_gpus == line.gpus]
        assert (assigned.gpu, assigned.is_wide, assigned.owner) == (line.gpu, True, line.service)
        assert assigned.tpot_ms == 60.0
        assert assigned.slo_ms == 2000.0
        assert {gpu.index for gpu in wanted.gpus} >= set(line.gpus)


def test_a_server_gets_the_cache_that_its_profile_states_unless_its_owner_says_otherwise() -> None:
    snapshot, plan = planned()
    stated = {str(degree): {"cacheTokens": 50_000} for degree in (1, 2, 4, 8)}

    def args_of(template: str, **own: int) -> list[dict[str, object]]:
        declared = []
        for each in snapshot.declared:
            spec = dict(each.spec)
            if each.kind == Kind.PROFILE and "iteration" in spec:
                spec["engine"] = {degree: stated[degree] for degree in spec["iteration"]}
            if each.kind == Kind.MODEL and "llm" in spec["variants"][0]:
                runtime = {"template": template, "args": {"model": "m", **own}}
                spec["variants"] = [{**variant, "runtime": runtime} for variant in spec["variants"]]
            declared.append(replace(each, spec=spec))
        stating = replace(snapshot, declared=tuple(declared), in_force={})
        found = assign_plan(stating, formulate(stating), plan)
        return [dict(line.args or {}) for node in found.values() for line in node.instances if line.tpot_ms]

    assert args_of("gpuwright-llm")
    assert all(args["kvTokens"] == 50_000 for args in args_of("gpuwright-llm"))
    assert {args["kvCacheBytes"] for args in args_of("vllm")} <= {
        -(-50_016 * size // degree) for size in (327_680, 131_072) for degree in (1, 2, 4, 8)
    }
    assert all(args["kvCacheBytes"] == 7 for args in args_of("vllm", kvCacheBytes=7))
    assert not any("kvCacheBytes" in args for args in args_of("sglang"))


def test_a_changed_list_of_adapters_changes_no_argument_and_the_first_of_them_asks_for_places() -> None:
    snapshot, plan = planned()

    def assign(*adapters: str) -> list[AssignedInstance]:
        declared = []
        for each in snapshot.declared:
            spec = dict(each.spec)
            if each.kind == Kind.PROFILE and "iteration" in spec:
                spec["adapters"] = {"places": 4, "maxRank": 16, "placeGib": 0.01}
            if each.kind == Kind.MODEL and "llm" in spec["variants"][0]:
                runtime = {"template": "vllm-lora", "args": {"model": "m"}}
                spec["variants"] = [{**variant, "runtime": runtime} for variant in spec["variants"]]
            if each.kind == Kind.SERVICE and "tokens" in spec and adapters:
                spec["adapters"] = [{"name": name, "path": f"adapters/{name}", "rank": 8} for name in adapters]
            declared.append(replace(each, spec=spec))
        stating = replace(snapshot, declared=tuple(declared))
        question = formulate(stating)
        fingerprints.append(question.fingerprint)
        assigned = assign_plan(stating, question, plan)
        return [line for node in assigned.values() for line in node.instances if line.tpot_ms]

    fingerprints: list[bytes] = []
    for plain, first, other in zip(assign(), assign("law", "tax"), assign("law", "tort"), strict=True):
        assert not plain.adapters
        assert "adapterPlaces" not in (plain.args or {})
        assert first.args == other.args == {"model": "m", "adapterPlaces": 4, "adapterRank": "16"}
        assert [adapter.path for adapter in other.adapters] == ["adapters/law", "adapters/tort"]
        assert same_process(first, other)
        assert not same_process(plain, first)
    assert len(set(fingerprints)) == 3, "each list is another question, so that nodes get it"


def test_what_runs_is_read_back_and_the_next_plan_leaves_it_alone() -> None:
    snapshot, plan = planned()
    question = formulate(join_snapshot(snapshot_parts(snapshot)))
    running = running_plan(question.problem)
    shapes = {(line.service, line.places, line.batch) for line in plan.instances}
    assert {(line.service, line.places, line.batch) for line in running.instances} == shapes
    again = Inline().solve(question.problem, seconds=0, work=4).plan
    assert again
    assert judge(question.problem, again).is_right
    assert (again.changes.start, again.changes.stop, again.changes.move, again.changes.resize) == (0, 0, 0, 0)
    desired = assign_plan(snapshot, question, again)
    assert {i.id for wanted in desired.values() for i in wanted.instances} == {
        i.id for wanted in snapshot.in_force.values() for i in wanted.instances
    }


def test_one_cordoned_gpu_keeps_all_gpus_of_its_instance_from_others() -> None:
    snapshot, plan = planned()
    line = next(line for line in plan.instances if len(line.gpus) > 1)
    facts = replace(snapshot.nodes[line.node], cordoned_gpus=line.gpus[:1])
    question = formulate(replace(snapshot, nodes={**snapshot.nodes, line.node: facts}))
    assert [(node, pinned.all_gpus) for node, pinned in question.pinned] == [(line.node, line.gpus)]
    assert not set(question.problem.nodes[line.node].gpus) & set(line.gpus)


def test_rates_are_followed_without_a_full_plan_as_far_as_the_instances_carry_them() -> None:
    snapshot, _ = planned()
    problem = formulate(snapshot).problem
    running = running_plan(problem)
    followed = Inline().follow(problem, running, {"shop/assistant": 1.5, "shop/photos": 1450.0}, seconds=1).plan
    assert followed
    carried = {
        name: sum(i.rate_per_second for i in followed.instances if i.service == name) for name in problem.services
    }
    assert carried == pytest.approx({"shop/assistant": 1.5, "shop/photos": 1450.0, "shop/summaries": 12.0})
    assert {i.places for i in followed.instances} == {i.places for i in running.instances}
    risen = Inline().follow(problem, running, {"shop/assistant": 500.0}, seconds=1)
    assert risen.plan
    assert [entry.service for entry in risen.plan.unserved] == ["shop/assistant"]
    assert "of shop/assistant stay unserved" in risen.message
    added = Inline().add(problem.change_rates({"shop/photos": 1600.0}), seconds=1).plan
    assert added
    assert judge(problem.change_rates({"shop/photos": 1600.0}), added, simulate=False).is_right


def test_each_gpu_is_paid_and_counts_against_a_tenant() -> None:
    snapshot, plan = planned()
    problem = formulate(snapshot).problem
    costs = costs_of_services(problem, plan)
    assert plan.certificate
    assert sum(costs.values()) == pytest.approx(plan.certificate.cost.resource)
    assert plan_costs(problem, plan) == pytest.approx({"shop": plan.certificate.cost.resource})
    assert cost_rates(problem, plan)["shop"] == pytest.approx(plan.certificate.cost.resource, rel=0.2)
    wide = [line for line in plan.instances if line.service == "shop/assistant"]
    used = sum_use_by_service(problem, plan.instances)["shop/assistant"]
    assert used.gpus == sum(line.degree for line in wide)
    assigned = [(node, line) for node, wanted in snapshot.in_force.items() for line in wanted.instances if line.is_wide]
    assert sum_use_of_assigned(assigned, {})["shop"].gpus == sum(len(line.all_gpus) for _, line in assigned)


def test_an_explanation_names_the_gpus_and_what_they_carry() -> None:
    snapshot, plan = planned()
    problem = formulate(snapshot).problem
    said = " ".join(describe_service(problem, why_service(problem, plan, "shop/assistant")))
    assert "with the first token within 2000 ms" in said
    assert "4 linked GPUs of type" in said
    line = next(line for line in plan.instances if line.service == "shop/assistant")
    why = why_instance(problem, plan, line)
    assert "a request a second costs" in why.why_not_cheaper
    other = why_service(problem, plan, "shop/photos")
    assert other.shapes
    missing = why_service(problem.change_rates({"shop/assistant": 500.0}), Plan((), unserved=()), "shop/assistant")
    assert missing.instances == ()
