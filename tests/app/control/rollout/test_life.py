"""A newer plan takes over from the state of its predecessor; an earlier plan is restored as far as possible."""

from __future__ import annotations

from dataclasses import replace

from app.control.domain.snapshot import NodeStatus
from app.control.rollout.life import begin, restart_clocks, roll_back
from app.control.rollout.rules import Canary, LaggingNode, Leaving, PendingStep, RolloutState
from tests.app.control.rollout.fleets import a_node, an_instance, rules
from tests.app.control.rollout.referee import placed_instances

OLD, NEW = an_instance("old"), an_instance("new")
FINE = {node: NodeStatus(node, "reporting") for node in ("n1", "n2", "n3")}


def test_pending_steps_stay_pending_when_another_plan_takes_over() -> None:
    before = RolloutState(("x",), {"new": PendingStep(1.0)}, {"gone": Leaving("n1", OLD)}, {}, ("k",), 7)
    begun = begin(before, {"n1": a_node(OLD)}, {"n2": a_node(NEW)}, rules())
    assert begun == RolloutState((), before.pending, before.leaving, {}, ("k",), 0)


def test_after_an_outage_every_clock_that_began_before_it_begins_again() -> None:
    canary = Canary("new", 3.0, None, 2.0)
    before = RolloutState(
        pending={"new": PendingStep(1.0, held_since=4.0)},
        leaving={"gone": Leaving("n1", OLD, 2.0, is_overdue=True)},
        canaries={"k": canary, "fallen": replace(canary, ready_since=0.0), "coming": Canary("late")},
        lagging={"n1": LaggingNode(7, 5.0)},
        stuck_since=6.0,
    )
    found = restart_clocks(before, 100.0)
    assert found == RolloutState(
        pending={"new": PendingStep(100.0)},
        leaving={"gone": Leaving("n1", OLD, 100.0, is_overdue=True)},
        canaries={
            "k": Canary("new", 100.0, None, 100.0), "fallen": Canary("new", 0.0, None, 100.0), "coming": Canary("late")
        },
        lagging={"n1": LaggingNode(7, 100.0)},
        stuck_since=100.0,
    )  # fmt: skip
    assert restart_clocks(found, 100.0) == restart_clocks(found, 50.0) == found
    assert restart_clocks(RolloutState(), 100.0) == RolloutState()


def test_an_earlier_plan_comes_back() -> None:
    found = roll_back({"n1": a_node(OLD)}, {"n2": a_node(NEW)}, FINE, {"shop/search"}, rules())
    assert found.stuck == ()
    assert sorted(placed_instances(found.target)) == ["old"]


def test_new_services_stay_and_deleted_services_do_not_come_back() -> None:
    earlier = {"n1": a_node(OLD, an_instance("deleted", "past"))}
    assigned = {"n2": a_node(NEW), "n3": a_node(an_instance("fresh", "young"))}
    found = roll_back(earlier, assigned, FINE, {"shop/search", "shop/young"}, rules())
    assert sorted(placed_instances(found.target)) == ["fresh", "old"]


def test_nothing_comes_back_to_a_gpu_that_is_cordoned_or_to_a_node_that_is_away() -> None:
    earlier = {"n1": a_node(OLD), "n3": a_node(an_instance("far", "other"))}
    assigned = {"n2": a_node(NEW, an_instance("near", "other"))}
    facts = FINE | {"n1": NodeStatus("n1", "reporting", cordoned_gpus=(0,)), "n3": NodeStatus("n3", "silent")}
    found = roll_back(earlier, assigned, facts, {"shop/search", "shop/other"}, rules())
    assert {change.service: change.reason for change in found.stuck} == {
        "shop/search": "cordoned",
        "shop/other": "node_silent",
    }
    assert placed_instances(found.target) == placed_instances(assigned)
