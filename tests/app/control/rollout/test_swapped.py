"""Jobs in host memory: they free their GPU before services come, go on where they were, and never run twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus, NodeDesired
from app.control.domain.snapshot import NodeStatus
from app.control.rollout.keeping import keep_owners
from app.control.rollout.life import roll_back
from app.control.rollout.rules import Advance, RolloutRules, RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, advance, all_serve, an_instance, rules
from tests.app.control.rollout.nodes import Fleet
from tests.support.soak import scaled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB, COMES = a_job("job", sm=80), an_instance("comes", sm=90)
SWAPS = rules(swapping=frozenset({"lab/train"}))
WAITING = {"n1": a_node(COMES, swapped=(JOB,))}  # the job waits in host memory while a service has its GPU


def step_of(
    target: Desired, assigned: Desired, observed: FleetStatus, state: RolloutState, by: RolloutRules = SWAPS
) -> Advance:
    return advance(target, assigned, observed, state, by, NOW)


def seen(assigned: Desired, **stages: str) -> FleetStatus:
    """Returns a status in which all assigned instances serve and these copies have other stages."""
    observed = all_serve(assigned)
    others = {id_: InstanceStatus(stage) for id_, stage in stages.items()}
    return replace(observed, instances={**observed.instances, **others})


def test_a_job_goes_to_host_memory_and_the_service_comes_once_it_is_there() -> None:
    before = {"n1": a_node(JOB)}
    step = step_of(WAITING, before, all_serve(before), RolloutState())
    assert step.made == ("job",)
    assert (step.desired["n1"].instances, step.desired["n1"].swapped) == ((), (JOB,))
    early = step_of(WAITING, step.desired, seen(step.desired, job="swapping"), step.state)
    assert early.made == ()
    later = step_of(WAITING, step.desired, seen(step.desired, job="swapped"), step.state)
    assert later.made == ("comes",)
    assert later.desired == WAITING


def test_one_that_is_on_its_way_there_holds_its_room_when_it_is_to_end_instead() -> None:
    before = {"n1": a_node(JOB)}
    step = step_of(WAITING, before, all_serve(before), RolloutState())
    alone = {"n1": a_node(COMES)}
    early = step_of(alone, step.desired, seen(step.desired, job="swapping"), step.state)
    assert (early.made, early.desired["n1"].swapped) == ((), ())
    assert step_of(alone, early.desired, seen(early.desired, job="swapped"), early.state).made == ()
    assert step_of(alone, early.desired, all_serve(early.desired), early.state).made == ("comes",)


@pytest.mark.parametrize(
    "target", [{"n1": a_node(COMES), "n2": a_node(a_job("there"))}, {"n2": a_node(a_job("there"))}]
)
def test_a_job_that_stays_as_assigned_stays_in_host_memory(target: Desired) -> None:
    for assigned in (WAITING, {"n1": a_node(swapped=(JOB,))}):
        kept = keep_owners(target, assigned, {"lab/train"})
        assert kept["n1"].swapped == (JOB,)
        assert kept["n2"].instances == ()
        assert keep_owners(target, assigned, ())["n2"].instances


def test_where_its_node_ends_it_instead_the_service_comes_too() -> None:
    before = {"n1": a_node(JOB)}
    step = step_of(WAITING, before, all_serve(before), RolloutState())
    assert step_of(WAITING, step.desired, all_serve(step.desired), step.state).made == ("comes",)


def test_it_goes_on_in_its_place_as_the_same_instance() -> None:
    target = {"n1": a_node(JOB)}
    step = step_of(target, WAITING, seen(WAITING, job="swapped"), RolloutState())
    assert step.made == ("comes",)
    assert step.desired["n1"].swapped == (JOB,)
    later = step_of(target, step.desired, seen(step.desired, job="swapped"), step.state)
    assert later.made == ("job",)
    assert later.desired == target


def test_elsewhere_it_starts_once_its_process_in_host_memory_is_gone() -> None:
    target = {"n1": a_node(COMES), "n2": a_node(a_job("there"))}
    step = step_of(target, WAITING, seen(WAITING, job="swapped"), RolloutState())
    assert step.made == ()
    assert step.desired["n1"].swapped == ()
    still = step_of(target, step.desired, seen(step.desired, job="swapped"), step.state)
    assert still.made == ()
    assert [change.reason for change in still.waiting] == ["job_under_way"]
    assert step_of(target, step.desired, all_serve(step.desired), still.state).made == ("there",)


def test_a_job_whose_manifest_forbids_it_or_is_gone_does_not_wait_there() -> None:
    step = step_of(WAITING, WAITING, seen(WAITING, job="swapped"), RolloutState(), rules())
    assert step.changed == {"n1": a_node(COMES)}
    assert not step.done
    after = advance(WAITING, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert after.done


def test_after_a_rollback_it_waits_where_it_waited_then_and_does_now() -> None:
    def back(earlier: Desired, assigned: Desired, *draining: int, without: str = "") -> Desired:
        nodes = {"n1": NodeStatus("n1", "reporting", draining_gpus=draining)}
        return roll_back(earlier, assigned, nodes, {JOB.owner, COMES.owner} - {without}, SWAPS).target

    waited = {"n1": a_node(an_instance("was", sm=60), swapped=(JOB,))}
    assert back(waited, WAITING)["n1"].swapped == (JOB,)
    assert back(waited, WAITING, without=JOB.owner)["n1"].swapped == (), "it has been deleted"
    assert back(waited, WAITING, 0)["n1"].swapped == (), "its GPU is drained"
    assert back(waited, {"n1": a_node(COMES)})["n1"].swapped == (), "its process is gone"
    alone, ran = {"n1": a_node(swapped=(JOB,))}, {"n1": a_node(JOB)}
    assert back(ran, alone) == ran
    assert back(alone, ran) == ran, "it was not planned then, and stays"


def test_with_its_node_lost_it_starts_elsewhere() -> None:
    target: dict[str, NodeDesired] = {"n2": a_node(a_job("there"))}
    assigned = {"n1": a_node(swapped=(JOB,))}
    lost = replace(seen(assigned, job="swapped"), lost=frozenset({"n1"}), silent=frozenset({"n1"}))
    step = step_of(target, assigned, lost, RolloutState())
    assert step.made == ("there",)


def _plans(random: Random) -> tuple[Desired, Desired]:
    """Returns what is assigned and a target, with a job that runs, waits in host memory, or is nowhere in each."""

    def fleet(names: tuple[str, str]) -> tuple[dict[str, list[AssignedInstance]], dict[str, list[AssignedInstance]]]:
        lines: dict[str, list[AssignedInstance]] = {"n1": [], "n2": []}
        swapped: dict[str, list[AssignedInstance]] = {"n1": [], "n2": []}
        node = random.choice(("n1", "n2"))
        where = random.choice((lines, swapped, swapped, None))
        for other in lines:
            if random.random() < 0.6:
                lines[other].append(an_instance(names[0] + other, names[1], sm=random.choice((20, 60))))
        if where is not None:
            sm = random.choice((30, 40))
            if where is swapped or sum(line.sm_percent for line in lines[node]) + sm <= 100:
                where[node].append(a_job(f"job-{node}", sm=sm))
        return lines, swapped

    def whole(names: tuple[str, str]) -> Desired:
        lines, swapped = fleet(names)
        return {node: a_node(*lines[node], swapped=tuple(swapped[node])) for node in lines}

    return whole(("a-", "old")), whole(("b-", "new"))


@pytest.mark.parametrize("seed", range(scaled(200, 20)))
def test_on_nodes_at_their_own_pace_it_never_runs_twice_and_ends_as_planned(seed: int) -> None:
    random = Random(seed)
    assigned, target = _plans(random)
    fleet, state = Fleet(assigned, Random(seed)), RolloutState()
    for generation in range(2, 400):
        step = step_of(target, fleet.assigned, fleet.observed(), state)
        state = step.state
        fleet.tell(step.changed, generation)
        fleet.pass_time()
        copies = [copy for node in fleet.nodes.values() for copy in node.copies if copy.instance.job]
        assert len(copies) <= 1, copies
        assert not fleet.overfull(SWAPS)
        if step.done and not step.changed:
            break
    assert step.done, step.waiting
    assert {node: wanted.instances for node, wanted in fleet.assigned.items()} == {
        node: wanted.instances for node, wanted in target.items()
    }
    was = {line.id for wanted in assigned.values() for line in (*wanted.instances, *wanted.swapped)}
    for node, wanted in target.items():
        assert [line.id for line in fleet.assigned[node].swapped] == sorted({line.id for line in wanted.swapped} & was)
