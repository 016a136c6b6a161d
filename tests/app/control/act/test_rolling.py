"""Rollouts over a simulated fleet and a real Postgres: copies that never start, and changes that block each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from agents.contract.assignments import AssignedInstance, Frame
from agents.control.assignments import AssignmentVerdict
from app.control.domain.decision import Decision, PlanState
from app.control.domain.desired import Desired, NodeDesired, have_same_instances
from app.control.domain.events import Reason
from app.control.domain.failures import RecentFailures, group_failures, read_failures
from app.http.metrics import REGISTRY
from app.store.plans import plans
from simulation.run import Simulation, open_simulation
from tests.simulation.worlds import small

pytestmark = pytest.mark.slow


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


def delay_starts(simulation: Simulation, service: str) -> None:
    """Keeps copies of the service that start now from ever getting ready."""
    for node in simulation.fleet.nodes.values():
        for copy in node.alive():
            if copy.wanted.service == service:
                node._ready_at[copy.id] = inf


def test_a_late_copy_starts_once_more_then_its_service_rests_and_the_others_serve(database_url: str) -> None:
    failures: Sequence[RecentFailures] = []
    with open_simulation(database_url, small(gpus=4)) as simulation:
        for _ in simulation.seconds(480, 3.0):
            delay_starts(simulation, "a")
            plan = simulation.database.read(plans.read_plan_in_force)
            failures = group_failures(read_failures(plan.progress), simulation.clock.now()) if plan else ()
            if failures:
                break
        assert simulation.fleet.ready("shop/b") >= 1 and simulation.fleet.ready("shop/c") >= 1
        assert [found.owner for found in failures] == ["shop/a"]
        answers = rows(simulation, "SELECT reason, message FROM event WHERE reason LIKE 'step_%' ORDER BY at")
        assert {reason for reason, _ in answers} == {"step_retried", "step_timed_out"}
        assert all("it is still starting after" in message for _, message in answers)
        last = "SELECT state FROM plan ORDER BY generation DESC LIMIT 1"
        for _ in simulation.seconds(300, 3.0):  # it rested, and its copies start again
            if simulation.fleet.ready("shop/a") >= 1 and rows(simulation, last) == [("done",)]:
                break
        else:
            raise AssertionError("its copies do not serve, or the plan is not done")


def settled(simulation: Simulation) -> Decision:
    """Runs until the first plan is rolled out; returns the last decision."""
    decision = None
    for _ in simulation.seconds(75, 3.0):
        decision = (simulation.last and simulation.last.decision) or decision
    assert decision
    return decision


def roll_out(simulation: Simulation, decision: Decision, desired: Desired) -> int:
    """Records this as the plan to be rolled out, which no cycle replaces; returns its generation."""
    store = simulation.planner.store
    plan = store.view().plan
    assert plan and simulation.last and simulation.last.snapshot
    snapshot = replace(simulation.last.snapshot, target=plan.generation, epoch=store.epoch)
    simulation.plans = False
    (generation,) = store.record(snapshot, [replace(decision, desired=desired, state=PlanState.ROLLING)])
    return generation


def follow(simulation: Simulation, seconds: float) -> Iterator[float]:
    """Only the rollout goes on."""
    for moment in simulation.seconds(seconds, 3.0):
        assert simulation.planner.lead()
        simulation.planner.advance()
        yield moment


def with_a_blocked_move(desired: Desired, service: str, place: tuple[str, int]) -> dict[str, NodeDesired]:
    """Moves the service to a GPU on which others leave no room for it."""
    lines: dict[str, list[AssignedInstance]] = {node: list(wanted.instances) for node, wanted in desired.items()}
    mine = [line for some in lines.values() for line in some if line.service == service]
    rate = sum(line.rate_per_second for line in mine)
    lines = {node: [line for line in some if line.service != service] for node, some in lines.items()}
    lines[place[0]].append(
        msgspec.structs.replace(mine[0], id="moved", gpu=place[1], sm_percent=100.0, rate_per_second=rate)
    )
    return {
        node: replace(wanted, instances=tuple(sorted(lines[node], key=lambda line: line.id)))
        for node, wanted in desired.items()
    }


def test_changes_that_block_each_other_raise_an_alarm_and_are_left_out(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        decision = settled(simulation)
        view, ready = simulation.planner.store.view(), simulation.fleet.ready("shop/a")
        place = next(
            (node, line.gpu) for node, wanted in view.target.items() for line in wanted.instances if line.service == "b"
        )
        blocked = with_a_blocked_move(view.target, "a", place)
        assert ready
        made = roll_out(simulation, decision, blocked)
        for _ in follow(simulation, 36):
            pass
        assert simulation.fleet.ready("shop/a") == ready
        (message,) = rows(simulation, "SELECT message FROM event WHERE reason = 'rollout_blocked'")
        assert "moved of shop/a: needs " in message[0]
        (row,) = rows(simulation, f"SELECT state, rollout FROM plan WHERE generation = {made}")
        assert (row.state, row.rollout["freed"]) == ("done", ["shop/a"])
        assert 15 <= row.rollout["waited_seconds"] <= 30
        assert simulation.planner.called_for == Reason.ROLLOUT_BLOCKED
        assert simulation.planner._lane.base is None, "no quick step brings back what was left out"
        simulation.planner.cycle(Reason.CYCLE)
        (found,) = rows(simulation, "SELECT status FROM object WHERE kind = 'Service' AND name = 'a'")
        degraded = next(each for each in found.status["conditions"] if each["type"] == "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "RolloutBlocked")


def test_quick_steps_know_what_runs_and_starts(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        decision = settled(simulation)
        roll_out(simulation, decision, with_smaller_batches(decision.desired, "a"))
        for _ in follow(simulation, 10):
            assigned = simulation.planner._lane.assigned
            assert assigned and have_same_instances(assigned, simulation.planner.store.view().assigned)


def with_smaller_batches(desired: Desired, service: str) -> dict[str, NodeDesired]:
    """Retunes every copy of the service: the same process, which takes fewer requests at a time."""
    return {
        node: replace(
            wanted,
            instances=tuple(
                msgspec.structs.replace(line, batch=Frame(1, 1, line.batch.max if line.batch else 8))
                if line.service == service
                else line
                for line in wanted.instances
            ),
        )
        for node, wanted in desired.items()
    }


def test_a_node_that_reports_and_applies_no_assignment_does_not_hold_up_full_cycles(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        decision = settled(simulation)
        for node in simulation.fleet.nodes.values():
            node.offer = lambda offered: AssignmentVerdict.UNSOUND  # type: ignore[method-assign]
        target = simulation.planner.store.view().target
        made = roll_out(simulation, decision, with_smaller_batches(target, "a"))
        rolling_since = set()
        for _ in follow(simulation, 1000):
            rolling_since.add(REGISTRY.get_sample_value("gpuwright_rolling_since_timestamp_seconds"))
            if rows(simulation, f"SELECT 1 FROM plan WHERE generation = {made} AND state <> 'rolling'"):
                break
        found = dict(rows(simulation, "SELECT reason, message FROM event WHERE reason LIKE 'step_%'"))
        assert found.keys() == {"step_retried", "step_timed_out"}
        assert all(" on node-" in message for message in found.values())
        assert all("its node has not applied its assignment after" in message for message in found.values())
        assert rows(simulation, f"SELECT state FROM plan WHERE generation = {made}") == [("stopped",)]
        assert len(rolling_since) == 2 and None in rolling_since, "the metric says when it began, and that it ended"
        simulation.planner.cycle(Reason.CYCLE)
        (last,) = rows(simulation, "SELECT reason FROM cycle ORDER BY at DESC LIMIT 1")
        assert last.reason != "rollout_under_way"


def without_service(desired: Desired, service: str) -> dict[str, NodeDesired]:
    return {
        node: replace(wanted, instances=tuple(line for line in wanted.instances if line.service != service))
        for node, wanted in desired.items()
    }


def test_a_rollout_rests_while_no_node_reports_and_what_leaves_has_all_its_time_afterwards(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4)) as simulation:
        decision = settled(simulation)
        assert simulation.fleet.ready("shop/c")
        made = roll_out(simulation, decision, without_service(simulation.planner.store.view().target, "c"))
        simulation.post.silence(simulation.fleet.nodes)
        read = f"SELECT rollout FROM plan WHERE generation = {made}"
        progress = [rows(simulation, read)[0].rollout for _ in follow(simulation, 420)]
        assert progress[0]["leaving"] and progress[-1] == progress[15]
        first, *others = sorted(simulation.fleet.nodes)
        simulation.post.silence([first], "as usual")
        for _ in follow(simulation, 21):
            pass
        status = simulation.planner.store.view().status
        assert not status.is_outage and status.silent == frozenset(others)
        simulation.post.silence(others, "as usual")
        for _ in follow(simulation, 60):
            pass
        assert rows(simulation, f"SELECT state FROM plan WHERE generation = {made}") == [("done",)]
        assert not simulation.fleet.ready("shop/c")
        assert rows(simulation, "SELECT message FROM event WHERE reason LIKE 'step_%'") == []
