"""An edit of one service that spare room can serve moves it and at most three others, and each change says why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.answer.explain.difference import find_differences, is_changed
from app.control.answer.explain.why_changed import ChangeFacts
from app.control.answer.whatif.change import RateChange, WhatIfChange
from app.control.answer.whatif.question import WhatIf
from app.control.decide.as_declared import answers_edit
from app.control.decide.deciding import Asking, CycleBudget, decide, pose_moment
from app.control.decide.least_change import MOST_OTHERS
from app.control.domain.decision import Decision
from app.control.domain.desired import Desired
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.formulate.causes import find_causes
from app.control.formulate.formulate import formulate
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.search.promise import keep
from solvers.planning.wire import to_json
from tests.app.control.decide.test_batches import SECONDS, SOLVER, fleet, under_load

pytestmark = pytest.mark.slow

WORK = 12
EDITED = ("media/shelf-camera", "shop/assistant", "shop/checkout-fraud", "shop/product-tags", "shop/search")


@pytest.fixture(scope="module")
def planned() -> Snapshot:
    """The demo's fleet with a plan that serves everything for little."""
    started = under_load(fleet(), 1.0)
    found = decide(pose_moment(started), Asking(SOLVER, CycleBudget(SECONDS, WORK), "first_plan")).decision
    assert found
    return replace(started, in_force=found.desired, target=1)


def edit_rate(snapshot: Snapshot, name: str, times: float) -> Snapshot:
    rate = snapshot.expected[name].rate_per_second * times
    return replace(snapshot, expected={**snapshot.expected, name: ExpectedLoad(rate)})


def edit_slo(snapshot: Snapshot, name: str, times: float) -> Snapshot:
    (service,) = (item for item in snapshot.declared if item.kind == "Service" and item.full_name == name)
    slo = {**service.spec["slo"], "latencyMs": service.spec["slo"]["latencyMs"] * times}
    others = tuple(item for item in snapshot.declared if item is not service)
    return replace(snapshot, declared=(*others, replace(service, spec={**service.spec, "slo": slo})))


def decided(snapshot: Snapshot) -> Decision:
    found = decide(pose_moment(snapshot), Asking(SOLVER, CycleBudget(SECONDS, WORK), "operator")).decision
    assert found
    return found


def shapes(desired: Desired) -> dict[str, Counter[tuple[object, ...]]]:
    found: dict[str, Counter[tuple[object, ...]]] = {}
    for node, wanted in desired.items():
        for line in wanted.instances:
            shape = (node, line.all_gpus, line.variant, line.sm_percent, round(line.memory_gib, 3))
            found.setdefault(line.owner, Counter())[shape] += 1
    return found


def others_moved(before: Desired, after: Desired, name: str) -> set[str]:
    old, new = shapes(before), shapes(after)
    return {owner for owner in old.keys() | new.keys() if old.get(owner) != new.get(owner)} - {name}


@pytest.mark.parametrize("name", EDITED)
def test_half_more_load_of_one_service_moves_at_most_three_others(planned: Snapshot, name: str) -> None:
    edited = edit_rate(planned, name, 1.5)
    found = decided(edited)
    verdict = judge(formulate(edited).problem, found.plan, simulate=False, keeps=keep)
    assert verdict.is_right
    assert not found.plan.unserved
    assert len(others_moved(planned.in_force, found.desired, name)) <= MOST_OTHERS


@pytest.mark.parametrize("times", [0.7, 2.0])
def test_another_slo_moves_at_most_three_others(planned: Snapshot, times: float) -> None:
    edited = edit_slo(planned, "shop/search", times)
    found = decided(edited)
    assert judge(formulate(edited).problem, found.plan, simulate=False, keeps=keep).is_right
    assert len(others_moved(planned.in_force, found.desired, "shop/search")) <= MOST_OTHERS
    slo_ms = formulate(edited).problem.services["shop/search"].slo_ms
    lines = [line for wanted in found.desired.values() for line in wanted.instances if line.owner == "shop/search"]
    assert {line.slo_ms for line in lines} == {slo_ms}


@pytest.mark.parametrize("name", EDITED[:2])
def test_the_curve_costs_less_the_more_may_move_and_each_change_has_a_reason(planned: Snapshot, name: str) -> None:
    change = WhatIfChange(rates={name: RateChange(times=1.5)})
    answer: Any = WhatIf(planned, change, seconds=60.0, work=4).answered()
    points = answer["leastChange"]
    assert [point["most"] for point in points] == [0, 3, 10, None]
    costs = [point["resourceCost"] for point in points]
    assert costs == sorted(costs, reverse=True)
    for point in points:
        assert point["most"] is None or len(point["moved"]) <= point["most"]
        assert point["savesPerHour"] == pytest.approx(costs[0] - point["resourceCost"])
        assert all(line["reasons"] for line in point["services"])
        touched = {line["service"] for line in point["services"] if _is_moved(line)}
        assert touched - {name} == set(point["moved"])


def _is_moved(line: Mapping[str, Any]) -> bool:
    return any(line[field] for field in ("started", "stopped", "moved", "resized"))


def worlds(planned: Snapshot) -> Iterator[Snapshot]:
    """Yields the fleet after edits, a drain and the loss of a node."""
    yield from (edit_rate(planned, name, times) for name, times in (("shop/search", 2.0), ("shop/product-tags", 0.4)))
    yield edit_slo(planned, "shop/search", 0.7)
    node = next(iter(sorted(planned.in_force)))
    yield replace(planned, nodes={**planned.nodes, node: replace(planned.nodes[node], state="lost")})
    gone = [item for item in planned.declared if item.full_name != "shop/reviews"]
    yield replace(planned, declared=tuple(gone))


def test_reasons_are_plain_facts(planned: Snapshot) -> None:
    """Each sentence is checked by loops over both plans that share nothing with what wrote it."""
    kinds: Counter[str] = Counter()
    for world in worlds(planned):
        before, question = formulate(planned), formulate(world)
        full = SOLVER.solve(question.problem, seconds=SECONDS, work=WORK).plan
        assert full
        for after in (full, decided(world).plan):
            facts = ChangeFacts(find_causes(world, question), (1.0, 2.0))
            old, new = before.plan_in_force, after
            wires = to_json(old, before.problem), to_json(new, question.problem)
            for line in find_differences(*wires, facts=facts):
                assert bool(line["reasons"]) >= is_changed(line)
                if is_changed(line):
                    kinds += Counter(_check(world, old, new, line["service"], line["reasons"][0].split("; ")))
    assert {"room", "rate", "lost", "deleted"} <= kinds.keys()


def test_only_manifests_are_edits(planned: Snapshot) -> None:
    """What moves as loads, nodes and jobs do is answered without a limit on how many others move."""
    *edits, lost, deleted = worlds(planned)
    node = next(iter(planned.in_force))
    wanted = planned.in_force[node]
    ended = AssignedInstance("job-1", 0, job="nightly", sm_percent=10.0)
    risen = replace(planned.expected["shop/search"], rate_per_second=99.0, reason="risen")
    others = [
        planned,
        lost,
        replace(planned, expected={**planned.expected, "shop/search": risen}),
        replace(planned, nodes={**planned.nodes, node: replace(planned.nodes[node], draining_gpus=(0,))}),
        replace(planned, in_force={**planned.in_force, node: replace(wanted, instances=(*wanted.instances, ended))}),
    ]
    assert all(answers_edit(world, formulate(world)) for world in (*edits[:1], *edits[2:], deleted))
    assert not any(answers_edit(world, formulate(world)) for world in others)


def _check(world: Snapshot, old: Plan, new: Plan, name: str, sentences: list[str]) -> Iterator[str]:
    """Yields the kind of each sentence; fails where it is not true."""
    for sentence in sentences:
        if found := re.match(r"it is planned for ([\d.,]+) requests a second instead of ([\d.,]+)", sentence):
            rates = [_rate_of(plan, name) for plan in (new, old)]
            assert [float(part.replace(",", "")) for part in found.groups()] == pytest.approx(rates, rel=1e-3)
            yield "rate"
        elif sentence.startswith("it makes room for "):
            for part in sentence.removeprefix("it makes room for ").split(" and "):
                other, place = part.split(" on ")
                assert _share(new, name, place) < _share(old, name, place)
                assert _share(new, other, place) > _share(old, other, place)
            yield "room"
        elif found := re.match(r"(\S+) changes beside it on (\S+)", sentence):
            other, place = found.groups()
            assert _share(old, name, place)
            assert _share(new, name, place)
            assert _share(new, other, place) != _share(old, other, place)
            yield "beside"
        elif found := re.match(r"it leaves (.+?) empty", sentence):
            for place in found[1].split(" and "):
                assert _share(old, name, place)
                assert not any(
                    f"{line.node}/{gpu}" == place for line in new.instances for gpu in line.gpus or (line.gpu,)
                )
            yield "empty"
        elif found := re.match(r"node (\S+) does not report any more", sentence):
            assert world.nodes[found[1]].state == "lost"
            assert any(line.node == found[1] and line.service == name for line in old.instances)
            yield "lost"
        elif sentence == "it is deleted":
            assert all(item.full_name != name for item in world.declared)
            yield "deleted"
        elif sentence.startswith("its SLO is "):
            assert name == "shop/search"
            yield "slo"
        elif found := re.match(r"([\d.,]+) of its requests a second were unserved", sentence):
            assert any(lack.service == name for lack in old.unserved)
            yield "unserved"
        elif sentence.startswith("its requests are shared otherwise"):
            places = [Counter((line.node, line.gpu, line.sm_percent) for line in plan.instances if line.service == name)
                      for plan in (old, new)]  # fmt: skip
            assert places[0] == places[1]
            yield "otherwise"
        else:
            assert re.match(r"it is part of a plan|the plan before breaks the rule|nothing of it", sentence), sentence
            yield "other"


def _rate_of(plan: Plan, name: str) -> float:
    lacks = sum(lack.rate_per_second for lack in plan.unserved if lack.service == name)
    return lacks + sum(line.rate_per_second for line in plan.instances if line.service == name)


def _share(plan: Plan, name: str, place: str) -> float:
    lines = [line for line in plan.instances if line.service == name]
    held = sum(line.sm_percent for line in lines for gpu in line.gpus or (line.gpu,) if f"{line.node}/{gpu}" == place)
    return held + sum(job.sm_percent for job in plan.jobs if job.job == name and f"{job.node}/{job.gpu}" == place)


def test_what_only_many_moves_serve_says_so(planned: Snapshot) -> None:
    """A load is raised until the least change cannot serve it, and the plan that does moves many."""
    for times in (2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0):
        edited = edit_rate(planned, "shop/search", times)
        found = decided(edited)
        if len(others_moved(planned.in_force, found.desired, "shop/search")) > MOST_OTHERS:
            assert re.match(
                r"other services move since the least change leaves .* of shop/search unserved", found.message
            )
            return
    pytest.fail("no load moved many")
