"""Draining nodes and GPUs: what moves, what stays and why, and what is late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.control.decide.cordons import draining_gpus, find_reclaimed_gpus, keep_undrainable, leaving, progress
from app.control.domain.decision import Decision, PlanningLane, SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired
from app.control.domain.snapshot import NodeStatus
from app.store.fleet.cordons import ALL_GPUS, Cordon
from solvers.planning.plan import Plan, Unserved
from tests.app.control.rollout.fleets import a_job, a_node, an_instance, replace_struct, rules
from tests.app.control.rollout.referee import placed_instances

NOW = datetime(2026, 1, 1, tzinfo=UTC)
N1 = {("n1", 0), ("n1", 1)}
STANDING = {"n1": a_node(an_instance("a1", "a"), an_instance("b1", "b", gpu=1)), "n2": a_node()}


def decided(desired: Desired, *unserved: Unserved) -> Decision:
    return Decision(PlanningLane.FULL, Plan((), unserved=unserved), desired, SolverAnswer(SolveOutcome.SOLVED))


def test_what_is_served_elsewhere_leaves() -> None:
    target = {"n2": a_node(an_instance("a2", "a"), an_instance("b2", "b"))}
    decision = keep_undrainable(decided(target), STANDING, N1, rules(), ())
    assert decision.held_back == ()
    assert decision.desired == target


def test_a_service_that_would_be_served_nowhere_stays_and_says_so() -> None:
    target = {"n2": a_node(an_instance("a2", "a"))}
    lacks = Unserved("shop/b", 100.0, "the GPUs are full", "one more v100 would serve it")
    decision = keep_undrainable(decided(target, lacks), STANDING, N1, rules(), ())
    assert [(change.service, change.reason) for change in decision.held_back] == [("shop/b", "no_room_anywhere")]
    assert decision.held_back[0].message == (
        "100 requests/s of shop/b would not be served; the GPUs are full; one more v100 would serve it"
    )
    assert sorted(placed_instances(decision.desired)) == ["a2", "b1"]
    assert decision.desired["n1"].instances == (an_instance("b1", "b", gpu=1),)


def test_what_was_unserved_before_and_is_served_as_much_elsewhere_leaves() -> None:
    target = {"n2": a_node(an_instance("a2", "a"), an_instance("b2", "b"))}
    assert leaving(decided(target, Unserved("shop/b", 50.0)), STANDING, N1) == ()


def test_where_a_node_is_reclaimed_a_part_moves_and_the_old_copies_carry_the_rest() -> None:
    before = {"n1": a_node(an_instance("b1", "b"), an_instance("b2", "b", gpu=1)), "n2": a_node()}
    target = {"n1": a_node(), "n2": a_node(an_instance("b3", "b"))}
    lacks = Unserved("shop/b", 100.0, "the GPUs are full")
    decision = keep_undrainable(decided(target, lacks), before, N1, rules(), N1)
    rates = {line.id: line.rate_per_second for wanted in decision.desired.values() for line in wanted.instances}
    assert rates == {"b1": 50.0, "b2": 50.0, "b3": 100.0}
    assert [(change.service, change.reason) for change in decision.held_back] == [("shop/b", "reclaim_short")]


def test_what_a_drain_holds_as_a_whole_stays_whole_even_if_another_node_is_reclaimed() -> None:
    before = {"n1": a_node(an_instance("b1", "b")), "n2": a_node(an_instance("b2", "b")), "n3": a_node()}
    target = {"n1": a_node(), "n2": a_node(), "n3": a_node(an_instance("b3", "b"))}
    places, lacks = {("n1", 0), ("n2", 0)}, Unserved("shop/b", 100.0)
    decision = keep_undrainable(decided(target, lacks), before, places, rules(), {("n2", 0)})
    assert sorted(placed_instances(decision.desired)) == ["b1", "b2"]
    assert [change.reason for change in decision.held_back] == ["no_room_anywhere"]


def test_of_the_gpus_to_be_emptied_those_of_nodes_under_notice_are_reclaimed() -> None:
    facts = {
        "n1": NodeStatus("n1", "reporting", draining_gpus=(0, 1), reclaimed_at=NOW),
        "n2": NodeStatus("n2", "reporting", draining_gpus=(0,)),
    }
    assert find_reclaimed_gpus(facts) == {("n1", 0), ("n1", 1)}


def test_a_job_leaves_unless_it_may_not_be_stopped() -> None:
    before = {"n1": a_node(a_job("may"), replace_struct(a_job("mayn-t", "other"), preemptible=False))}
    stays = leaving(decided({}), before, N1)
    assert [(change.instance, change.owner, change.reason) for change in stays] == [
        ("mayn-t", "lab/other", "not_preemptible")
    ]


def test_what_has_no_order_of_steps_stays_and_says_what_it_lacks() -> None:
    before = {"n1": a_node(an_instance("a1", "a", sm=80)), "n2": a_node(an_instance("c1", "c", sm=80))}
    target = {"n1": a_node(), "n2": a_node(an_instance("a2", "a", sm=80)), "n3": a_node(an_instance("c2", "c", sm=80))}
    blocked = rules(nodes=("n1", "n2"))  # nothing is known of n3
    decision = keep_undrainable(decided(target), before, {("n1", 0)}, blocked, ())
    assert sorted((change.service, change.reason) for change in decision.held_back) == [
        ("shop/a", "no_room_to_hand_over"),
        ("shop/c", "no_room_to_hand_over"),
    ]
    assert sorted(placed_instances(decision.desired)) == ["a1", "c1"]


def test_a_drain_is_done_when_nothing_is_left_and_late_when_something_is() -> None:
    def cordon(node: str, gpu: int = ALL_GPUS, deadline: datetime | None = None) -> Cordon:
        return Cordon(node, gpu, "drain", deadline, "ops", NOW)

    drains = [cordon("n1", 1, NOW), cordon("n1", deadline=NOW + timedelta(hours=1)), cordon("n9")]
    by_gpu, by_node, nowhere = progress(drains, STANDING, NOW, is_rolling=False)
    assert (len(by_gpu.remaining), by_gpu.is_late) == (1, True)
    assert (len(by_node.remaining), by_node.is_late, by_node.is_done) == (2, False, False)
    assert nowhere.is_done


def test_an_instance_on_several_gpus_stays_and_is_left_wherever_one_of_them_is_drained() -> None:
    before = {"n1": a_node(an_instance("b1", "b", gpus=(0, 1))), "n2": a_node()}
    for gpu in (0, 1):
        lacks = Unserved("shop/b", 100.0)
        decision = keep_undrainable(
            decided({"n1": a_node(), "n2": a_node()}, lacks), before, {("n1", gpu)}, rules(), ()
        )
        assert sorted(placed_instances(decision.desired)) == ["b1"]
        (drain,) = progress([Cordon("n1", gpu, "drain", None, "ops", NOW)], before, NOW, is_rolling=False)
        assert drain.remaining == ("shop/b",)


def test_a_drain_is_not_done_while_a_job_waits_in_host_memory_there() -> None:
    waiting = {"n1": a_node(swapped=(a_job("job", gpu=1),))}
    drains = [Cordon("n1", gpu, "drain", None, "ops", NOW) for gpu in (ALL_GPUS, 1, 0)]
    found = progress(drains, waiting, NOW, is_rolling=False)
    assert [drain.remaining for drain in found] == [("lab/train",), ("lab/train",), ()]


def test_a_drain_is_not_through_before_its_rollout_is_and_late_meanwhile() -> None:
    cordon = Cordon("n9", ALL_GPUS, "drain", NOW, "ops", NOW)
    (before,) = progress([cordon], STANDING, NOW - timedelta(seconds=1), is_rolling=True)
    (late,) = progress([cordon], STANDING, NOW, is_rolling=True)
    assert (before.is_done, before.is_late, late.is_done, late.is_late) == (False, False, False, True)


def test_the_gpus_to_be_emptied_are_those_that_are_drained() -> None:
    facts = {"n1": NodeStatus("n1", "reporting", cordoned_gpus=(0,), draining_gpus=(1, 2))}
    assert draining_gpus(facts) == {("n1", 1), ("n1", 2)}
