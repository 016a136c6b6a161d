"""A node that reports and applies nothing, or is silent again and again, holds no rollout for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from agents.contract.assignments import Frame
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.domain.readings import CopyTrial
from app.control.rollout.rules import RolloutRules, RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, advance, all_serve, an_instance, replace_struct, rules

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = rules(("n1", "n2", "n3"))
MOST_SECONDS = 1200
BETWEEN_REPORTS = 10
OLD = an_instance("old")
UNPROVEN = replace(RULES, unproven=frozenset({"m-search/int8/v100"}))
ELSEWHERE = an_instance("other", "other")
Report = Callable[[int, Desired, FleetStatus], FleetStatus]


@dataclass
class Rolled:
    """The messages of a rollout, and how it ended."""

    retried: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    overdue: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    desired: Desired = field(default_factory=dict)
    seconds: int = 0
    state: RolloutState = field(default_factory=RolloutState)


def roll(assigned: Desired, target: Desired, report: Report, rules_now: RolloutRules = RULES) -> Rolled:
    """Advances every second over a fleet that serves all it is assigned, apart from what `report` changes."""
    rolled, generations = Rolled(desired=assigned), dict.fromkeys(assigned, 1)
    trials = {"old": CopyTrial(500, 99.0)}
    for second in range(MOST_SECONDS):
        now = START + timedelta(seconds=second)
        at = now.timestamp() - second % BETWEEN_REPORTS
        served = all_serve(rolled.desired, generations=dict(generations), assigned_generations=dict(generations))
        observed = report(second, assigned, replace(served, reported_at=dict.fromkeys(generations, at)))
        step = advance(target, rolled.desired, observed, rolled.state, rules_now, now, trials)
        rolled.state = msgspec.json.decode(msgspec.json.encode(step.state), type=RolloutState)  # as it is kept
        rolled.retried += step.retried
        rolled.overdue += step.overdue
        rolled.stopped += [step.message] if step.stopped_reason else []
        rolled.freed += [step.freed] if step.freed else []
        target = target if step.target is None else step.target
        rolled.desired, rolled.seconds = step.desired, second
        generations |= {node: generations.get(node, 0) + 1 for node in step.changed}
        if step.done or step.is_over:
            return rolled
    raise AssertionError(f"the rollout has not ended: {rolled}")


def applies_nothing(node: str) -> Report:
    """Returns reports in which this node goes on with what it had before the rollout."""

    def report(second: int, before: Desired, observed: FleetStatus) -> FleetStatus:
        still = all_serve({node: before[node]}).instances
        rest = {id_: status for id_, status in observed.instances.items() if not id_.startswith("new")}
        return replace(observed, instances={**rest, **still}, generations={**observed.generations, node: 1})

    return report


def ids(desired: Desired) -> Mapping[str, list[str]]:
    return {node: [line.id for line in wanted.instances] for node, wanted in desired.items()}


def test_a_retune_that_is_never_applied_is_tried_twice_and_stops_only_its_component() -> None:
    smaller = replace_struct(OLD, rate_per_second=50.0, batch=Frame(4, 1, 8))
    assigned = {"n1": a_node(OLD), "n2": a_node()}
    rolled = roll(assigned, {"n1": a_node(smaller), "n2": a_node(ELSEWHERE)}, applies_nothing("n1"))
    assert len(rolled.retried) == 1 and len(rolled.stopped) == 1
    for message in (*rolled.retried, *rolled.stopped):
        assert message.startswith("old on n1/0: its node has not applied its assignment after ")
    assert rolled.desired == {"n1": a_node(OLD), "n2": a_node(ELSEWHERE)}


def test_a_retune_for_more_requests_ends_as_well_and_its_message_names_the_node() -> None:
    larger = replace_struct(OLD, rate_per_second=150.0, batch=Frame(4, 1, 8))
    rolled = roll({"n1": a_node(OLD)}, {"n1": a_node(larger)}, applies_nothing("n1"))
    assert rolled.retried[0].startswith("old on n1/0: its node has not applied its assignment")
    assert "node n1 has not applied its last assignment yet" in " ".join([*rolled.stopped, *rolled.freed])
    assert rolled.desired == {"n1": a_node(OLD)}


def test_changes_behind_a_stop_that_is_never_applied_are_left_out_and_an_event_names_the_node() -> None:
    full = an_instance("full", "other", memory=14)
    assigned = {"n1": a_node(full), "n2": a_node(an_instance("more", "other"))}
    target = {"n1": a_node(an_instance("new", memory=14)), "n2": a_node(an_instance("more", "other"))}
    rolled = roll(assigned, target, applies_nothing("n1"))
    assert rolled.overdue == ["full on n1/0: its node has not applied its assignment after 300 s"]
    assert len(rolled.freed) == 1 and "new of shop/search" in rolled.freed[0]
    assert ids(rolled.desired) == {"n1": [], "n2": ["more"]}


def test_a_job_whose_new_shape_is_never_applied_gets_its_old_shape_back() -> None:
    job = a_job("job")
    rolled = roll({"n1": a_node(job)}, {"n1": a_node(replace_struct(job, sm_percent=20.0))}, applies_nothing("n1"))
    assert rolled.stopped[0].startswith("job on n1/0: its node has not applied its assignment after ")
    assert rolled.desired == {"n1": a_node(job)}


def is_silent(second: int) -> bool:
    return second % 50 >= 45


def flapping(second: int, before: Desired, observed: FleetStatus) -> FleetStatus:
    """Reports of a node that is silent for 5 s of every 50; copies that start there stay at that."""
    last = second - second % 50 + (5 if second % 50 >= 5 else -45)
    return replace(
        observed,
        instances=dict.fromkeys(observed.instances, InstanceStatus("starting", rising="starting")),
        silent=frozenset({"n1"}) if is_silent(second) else frozenset(),
        reported_at={"n1": (START + timedelta(seconds=last)).timestamp()},
    )


def test_a_step_on_a_node_that_is_silent_again_and_again_ends() -> None:
    rolled = roll({"n1": a_node()}, {"n1": a_node(an_instance("new"))}, flapping)
    assert len(rolled.retried) == 1 and len(rolled.stopped) == 1
    assert "new on n1/0: it is still starting" in rolled.stopped[0]


def test_a_canary_on_a_node_that_is_silent_again_and_again_is_judged() -> None:
    def report(second: int, before: Desired, observed: FleetStatus) -> FleetStatus:
        return replace(observed, silent=frozenset({"n1"}) if is_silent(second) else frozenset())

    target = {"n1": a_node(replace_struct(OLD, variant="int8", sm_percent=30.0))}
    rolled = roll({"n1": a_node(OLD)}, target, report, UNPROVEN)
    assert rolled.desired == target and rolled.state.proven == ("m-search/int8/v100",)


def test_a_canary_that_keeps_falling_fails() -> None:
    def report(second: int, before: Desired, observed: FleetStatus) -> FleetStatus:
        return observed if second % 50 < 40 or second < 10 else replace(observed, instances={})

    target = {"n1": a_node(replace_struct(OLD, variant="int8", sm_percent=30.0))}
    rolled = roll({"n1": a_node(OLD)}, target, report, UNPROVEN)
    assert "m-search/int8/v100 on n1: it did not serve for 60 s at a stretch" in rolled.stopped[0]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_one_report_of_a_quiet_node_fails_no_step() -> None:
    target = {"n1": a_node(OLD)}
    step = advance(target, {"n1": a_node()}, all_serve({}), RolloutState(), RULES, START)

    def look(seconds: float, reported: float) -> str:
        nonlocal step
        held = FleetStatus({"old": InstanceStatus("", reason="exited")}, reported_at={"n1": at(reported).timestamp()})
        step = advance(target, step.desired, held, step.state, RULES, at(seconds))
        return step.stopped_reason

    assert not look(1, 1) and not look(33, 1)
    assert look(34, 34) == "step_failed"


def test_a_step_is_not_late_by_a_report_from_before_its_time_was_over() -> None:
    target = {"n1": a_node(OLD)}
    step = advance(target, {"n1": a_node()}, all_serve({}), RolloutState(), RULES, START)
    for seconds, reported in ((30, 28), (60, 58), (90, 88), (110, 108), (135, 108)):
        starting = FleetStatus({"old": InstanceStatus("starting")}, reported_at={"n1": at(reported).timestamp()})
        step = advance(target, step.desired, starting, step.state, RULES, at(seconds))
        assert not step.retried and not step.stopped_reason, seconds
    late = replace(starting, reported_at={"n1": at(136).timestamp()})
    assert advance(target, step.desired, late, step.state, RULES, at(137)).retried


def test_a_node_that_reports_older_assignments_again_makes_no_progress() -> None:
    def report(second: int, before: Desired, observed: FleetStatus) -> FleetStatus:
        found = applies_nothing("n1")(second, before, observed)
        return replace(found, generations={**found.generations, "n1": second // BETWEEN_REPORTS % 2})

    smaller = replace_struct(OLD, rate_per_second=50.0, batch=Frame(4, 1, 8))
    rolled = roll({"n1": a_node(OLD)}, {"n1": a_node(smaller)}, report)
    assert len(rolled.retried) == 1 and len(rolled.stopped) == 1
    assert rolled.desired == {"n1": a_node(OLD)}


@pytest.mark.parametrize("lost_from", [1, 20])
def test_a_canary_whose_node_is_lost_holds_no_rollout_for_ever(lost_from: int) -> None:
    def report(second: int, before: Desired, observed: FleetStatus) -> FleetStatus:
        if second < lost_from:
            return observed
        rest = {id_: status for id_, status in observed.instances.items() if id_ != "old-1"}
        return replace(observed, instances=rest, lost=frozenset({"n1"}), silent=frozenset({"n1"}))

    assigned = {"n1": a_node(an_instance("old-1")), "n2": a_node(an_instance("old-2"))}
    target = {
        node: a_node(replace_struct(line, variant="int8", memory_gib=2.0))
        for node, wanted in assigned.items()
        for line in wanted.instances
    }
    rolled = roll(assigned, target, report, UNPROVEN)
    assert "m-search/int8/v100 on n1: it did not serve for 60 s at a stretch" in rolled.stopped[0]
    assert rolled.desired["n2"] == assigned["n2"]
