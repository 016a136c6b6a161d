"""A newer plan takes over where the one before stands; an earlier one comes back as far as it can."""

from __future__ import annotations

from app.control.domain.snapshot import NodeStatus
from app.control.rollout import RolloutState, begin, roll_back
from app.control.rollout.rules import Leaving, PendingStep
from tests.app.control.rollout.fleets import a_node, an_instance, rules
from tests.app.control.rollout.referee import standing

OLD, NEW = an_instance("old"), an_instance("new")
FINE = {node: NodeStatus(node, "reporting") for node in ("n1", "n2", "n3")}


def test_what_is_on_its_way_still_is_when_another_plan_takes_over() -> None:
    before = RolloutState(("x",), {"new": PendingStep(1.0)}, {"gone": Leaving("n1", OLD)}, {}, ("k",), 7)
    begun = begin(before, {"n1": a_node(OLD)}, {"n2": a_node(NEW)}, rules())
    assert begun == RolloutState((), before.pending, before.leaving, {}, ("k",), 0)


def test_an_earlier_plan_comes_back() -> None:
    found = roll_back({"n1": a_node(OLD)}, {"n2": a_node(NEW)}, FINE, {"shop/search"}, rules())
    assert found.stuck == ()
    assert sorted(standing(found.target)) == ["old"]


def test_what_was_declared_since_stays_and_what_was_deleted_since_does_not_come_back() -> None:
    earlier = {"n1": a_node(OLD, an_instance("deleted", "past"))}
    told = {"n2": a_node(NEW), "n3": a_node(an_instance("fresh", "young"))}
    found = roll_back(earlier, told, FINE, {"shop/search", "shop/young"}, rules())
    assert sorted(standing(found.target)) == ["fresh", "old"]


def test_nothing_comes_back_to_a_gpu_that_is_cordoned_or_to_a_node_that_is_away() -> None:
    earlier = {"n1": a_node(OLD), "n3": a_node(an_instance("far", "other"))}
    told = {"n2": a_node(NEW, an_instance("near", "other"))}
    facts = FINE | {"n1": NodeStatus("n1", "reporting", cordoned_gpus=(0,)), "n3": NodeStatus("n3", "silent")}
    found = roll_back(earlier, told, facts, {"shop/search", "shop/other"}, rules())
    assert {one.service: one.reason for one in found.stuck} == {"shop/search": "cordoned", "shop/other": "node_silent"}
    assert standing(found.target) == standing(told)
