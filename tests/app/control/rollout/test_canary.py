"""A shape that never ran here is tried on a single instance before the others follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus
from app.control.domain.readings import CopyTrial
from app.control.rollout.canary import watch_canaries
from app.control.rollout.life import begin, restart_clocks
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import Advance, Canary, RolloutState
from tests.app.control.rollout.fleets import a_node, advance, all_serve, an_instance, replace_struct, rules
from tests.app.control.rollout.stepping import steps_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "m-search/int8/v100"
RULES = rules(unproven=frozenset({KEY}))
OLD = {"n1": a_node(an_instance("old-1")), "n2": a_node(an_instance("old-2"))}
TRIED = {
    "n1": a_node(an_instance("old-1", variant="int8", memory=2)),
    "n2": a_node(an_instance("old-2", variant="int8", memory=2)),
}


def follow(step: Advance, seconds: float, trials: Mapping[str, CopyTrial] | None = None) -> Advance:
    now = NOW + timedelta(seconds=seconds)
    return advance(TRIED, step.desired, all_serve(step.desired), step.state, RULES, now, trials)


def begun() -> Advance:
    return advance(TRIED, OLD, all_serve(OLD), RolloutState(), RULES, NOW)


def test_a_canary_starts_first_and_the_others_wait_while_it_is_watched() -> None:
    step = begun()
    assert step.made == ("old-1",)
    assert step.waiting[0].reason == "canary_first"
    assert follow(follow(step, 1), 59).made == ()


def test_the_others_follow_when_the_canary_met_its_slo() -> None:
    step = follow(begun(), 1)
    passed = follow(step, 62, {"old-1": CopyTrial(500, 99.0)})
    assert passed.passed == (KEY,)
    assert passed.made == ("old-2",)
    assert passed.state.proven == (KEY,)


def test_a_canary_that_misses_its_slo_gets_its_old_shape_and_stops_the_rest() -> None:
    step = follow(begun(), 1)
    failed = follow(step, 62, {"old-1": CopyTrial(500, 91.5)})
    assert failed.stopped_reason == "canary_failed"
    assert "91.50 % of 500 answers were within 80 ms; 98 % are promised" in failed.message
    assert failed.desired == OLD


def test_a_canary_that_has_passed_is_on_trial_no_more_although_another_one_fails_in_the_same_step() -> None:
    here = {"n1": a_node(an_instance("a", variant="int8")), "n2": a_node(an_instance("b", variant="int4"))}
    first, second = "m-search/int4/v100", "m-search/int8/v100"
    canaries = {first: Canary("b", ready_since=1.0), second: Canary("a", ready_since=1.0)}
    trials = {"b": CopyTrial(500, 99.0), "a": CopyTrial(500, 91.5)}
    found = watch_canaries(canaries, here, {}, all_serve(here), trials, RULES, 100.0)
    assert (found.passed, found.failed) == ((first,), "a")
    assert list(found.canaries) == [second]


def test_too_few_answers_decide_nothing_for_a_while() -> None:
    step = follow(begun(), 1)
    assert follow(step, 62, {"old-1": CopyTrial(10, 50.0)}).passed == ()
    assert follow(step, 302, {"old-1": CopyTrial(10, 50.0)}).passed == (KEY,)


def fallen_once() -> Advance:
    """The canary served at second 1, did not at second 30, and serves again at second 31."""
    step = follow(begun(), 1)
    fallen = advance(TRIED, step.desired, all_serve({}), step.state, RULES, NOW + timedelta(seconds=30))
    return follow(fallen, 31)


def test_the_watch_restarts_when_the_canary_dies() -> None:
    later = fallen_once()
    assert follow(later, 70, {"old-1": CopyTrial(500, 99.0)}).passed == ()
    assert follow(later, 92, {"old-1": CopyTrial(500, 99.0)}).passed == (KEY,)


def test_a_canary_from_before_an_outage_is_watched_again_after_it() -> None:
    step = follow(begun(), 1)
    back = NOW + timedelta(seconds=400)
    step = replace(step, state=restart_clocks(step.state, back.timestamp()))
    for answers in (CopyTrial(500, 91.5), CopyTrial(10, 99.0)):
        assert follow(step, 459, {"old-1": answers}).state.canaries == step.state.canaries
    assert follow(step, 461, {"old-1": CopyTrial(500, 99.0)}).passed == (KEY,)


def test_a_quiet_canary_that_died_once_is_watched_for_no_more_than_five_minutes() -> None:
    later = fallen_once()
    assert follow(later, 299, {"old-1": CopyTrial(10, 99.0)}).passed == ()
    assert follow(later, 302, {"old-1": CopyTrial(10, 99.0)}).passed == (KEY,)


def test_the_capacity_of_a_watched_canary_does_not_count() -> None:
    assigned = {"n1": a_node(an_instance("old")), "n2": a_node()}
    target = {"n2": a_node(an_instance("new", variant="int8"))}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), RULES, NOW)
    assert step.made == ("new",)
    step = advance(target, step.desired, all_serve(step.desired), step.state, RULES, NOW)
    assert step.made == ()
    later = NOW + timedelta(seconds=90)
    good = {"new": CopyTrial(500, 99.0)}
    assert advance(target, step.desired, all_serve(step.desired), step.state, RULES, later, good).made == ("old",)


def test_a_service_that_has_nothing_else_does_not_wait() -> None:
    assigned = {"n1": a_node(), "n2": a_node()}
    assert advance(TRIED, assigned, all_serve(assigned), RolloutState(), RULES, NOW).made == ("old-1", "old-2")


GROWN = {"n1": a_node(an_instance("old")), **{f"n{n}": a_node(an_instance(f"new-{n}", variant="int8")) for n in (2, 3)}}


def test_a_service_that_turns_requests_away_starts_its_copies_beside_the_canary() -> None:
    assigned = {"n1": a_node(an_instance("old")), "n2": a_node(), "n3": a_node()}
    step = advance(GROWN, assigned, all_serve(assigned), RolloutState(), RULES, NOW)
    assert step.made == ("new-2", "new-3")
    assert step.state.canaries[KEY].instance == "new-2"


def test_a_service_that_has_nine_tenths_of_its_rate_waits_for_its_canary() -> None:
    assigned = {"n1": a_node(an_instance("old", rate=290)), "n2": a_node(), "n3": a_node()}
    target = {**GROWN, "n1": assigned["n1"], "n2": a_node(an_instance("new-2", variant="int8", rate=15)),
              "n3": a_node(an_instance("new-3", variant="int8", rate=15))}  # fmt: skip
    assert advance(target, assigned, all_serve(assigned), RolloutState(), RULES, NOW).made == ("new-2",)


def test_nothing_stops_for_what_started_beside_a_canary_until_it_has_passed() -> None:
    assigned = {"n1": a_node(an_instance("old")), "n2": a_node(), "n3": a_node()}
    grown = advance(GROWN, assigned, all_serve(assigned), RolloutState(), RULES, NOW)
    fallen = {**GROWN, "n1": a_node()}  # the load has gone back to what the two new ones carry
    now = NOW + timedelta(seconds=5)
    step = advance(fallen, grown.desired, all_serve(grown.desired), grown.state, RULES, now)
    assert (step.made, step.waiting[0].reason) == ((), "capacity_at_risk")
    later, good = NOW + timedelta(seconds=90), {"new-2": CopyTrial(500, 99.0)}
    step = advance(fallen, step.desired, all_serve(step.desired), step.state, RULES, later, good)
    assert step.made == ("old",)


def test_the_copies_of_a_service_that_has_nothing_else_count_during_the_trial_of_another() -> None:
    both = rules(unproven=frozenset({"m-search/int8/v100", "m-other/int8/v100"}))
    other = an_instance("other", "other", gpu=1, variant="int8", model="m-search")
    assigned = {"n1": a_node(an_instance("old"), other), "n2": a_node(an_instance("new", variant="int8"))}
    target = {"n2": a_node(an_instance("new", variant="int8"), an_instance("moved", "other", 1, variant="int8"))}
    state = RolloutState(canaries={KEY: Canary("new")})
    step = advance(target, assigned, all_serve(assigned), state, both, NOW)
    later = advance(target, step.desired, all_serve(step.desired), step.state, both, NOW + timedelta(seconds=5))
    assert (step.made, later.made) == (("moved",), ("other",))


def test_a_copy_on_trial_grows_while_its_service_turns_requests_away() -> None:
    assigned = {"n1": a_node(an_instance("old")), "n2": a_node(), "n3": a_node()}
    step = advance(GROWN, assigned, all_serve(assigned), RolloutState(), RULES, NOW)
    larger = {**GROWN, "n3": a_node(an_instance("new-3", variant="int8", sm=50, rate=300))}
    now = NOW + timedelta(seconds=5)
    step = advance(larger, step.desired, all_serve(step.desired), step.state, RULES, now)
    assert step.made == ("new-3",)
    proven = {**GROWN, "n1": a_node(an_instance("old", variant="int8", rate=300))}  # the one that is not on trial
    step = advance(proven, step.desired, all_serve(step.desired), step.state, RULES, now)
    assert "old" not in step.made


def test_a_canary_that_serves_stays_while_its_service_lacks_what_it_carries() -> None:
    assigned = {"n1": a_node(an_instance("old")), "n2": a_node(), "n3": a_node()}
    first = {**assigned, "n2": a_node(an_instance("new-2", variant="int8"))}
    step = advance(first, assigned, all_serve(assigned), RolloutState(), RULES, NOW)
    serving = all_serve(step.desired)
    elsewhere = {**assigned, "n3": a_node(an_instance("new-3"))}  # a plan that is cheaper
    now = NOW + timedelta(seconds=5)
    step = advance(elsewhere, step.desired, serving, step.state, RULES, now)
    assert (step.made, [change.instance for change in step.waiting]) == (("new-3",), ["new-2"])
    step = advance(elsewhere, step.desired, all_serve(step.desired), step.state, RULES, now + timedelta(seconds=20))
    assert step.made == ("new-2",)


def waiting_for_room(*more: AssignedInstance) -> tuple[Desired, Desired, FleetStatus]:
    """usual moves from n1 to n2 in a shape that is on trial there; newcomer wants its old room, and has no copy."""
    old = [an_instance(f"old-{gpu}", "usual", gpu, sm=40) for gpu in (0, 1)]
    assigned = {"n1": a_node(*old, *more), "n2": a_node()}
    new = [an_instance(f"new-{gpu}", "usual", gpu, variant="int8", sm=21) for gpu in (0, 1)]
    coming = [an_instance(f"newcomer-{gpu}", "newcomer", gpu, sm=70) for gpu in (0, 1)]
    target = {"n1": a_node(*coming, *more), "n2": a_node(*new)}
    return assigned, target, all_serve(assigned)


USUAL = rules(unproven=frozenset({"m-usual/int8/v100"}))


def test_a_trial_delays_no_service_without_a_copy() -> None:
    assigned, target, observed = waiting_for_room()
    step = advance(target, assigned, observed, RolloutState(), USUAL, NOW)
    for seconds in range(1, 6):
        now = NOW + timedelta(seconds=seconds)
        step = advance(target, step.desired, all_serve(step.desired), step.state, USUAL, now)
    assert {instance.id for instance in step.desired["n1"].instances} == {"newcomer-0", "newcomer-1"}
    assert {instance.id for instance in step.desired["n2"].instances} == {"new-0", "new-1"}


def test_a_trial_continues_while_waiting_services_have_a_serving_copy() -> None:
    assigned, target, _ = waiting_for_room()
    has_one = {"n3": a_node(an_instance("newcomer-2", "newcomer"))}
    assigned, target = {**assigned, **has_one}, {**target, **has_one}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), USUAL, NOW)
    step = advance(target, step.desired, all_serve(step.desired), step.state, USUAL, NOW + timedelta(seconds=5))
    assert step.made == ()
    assert {change.reason for change in step.waiting} >= {"canary_first", "capacity_at_risk"}


def test_a_trial_elsewhere_continues_while_a_service_has_no_copy() -> None:
    big = an_instance("big", "big", sm=90)
    assigned = {**OLD, "n3": a_node(big)}
    target = {**TRIED, "n3": a_node(big, an_instance("newcomer", "newcomer", sm=70))}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), RULES, NOW)
    assert step.made == ("old-1",)
    step = advance(target, step.desired, all_serve(step.desired), step.state, RULES, NOW + timedelta(seconds=5))
    assert "canary_first" in {change.reason for change in step.waiting} and step.made == ()


def test_the_clock_of_a_trial_continues_under_another_plan_with_the_same_shape() -> None:
    step = follow(begun(), 1)
    later = begin(step.state, step.desired, TRIED, RULES)
    assert later.canaries == step.state.canaries and later.canaries[KEY].ready_since > 0


def test_a_trial_blocks_no_order() -> None:
    found = order(OLD, TRIED, RULES)
    assert found.stuck == () and len(steps_of(OLD, found, RULES)) == 1


def test_a_key_on_trial_stays_on_trial_although_it_runs_by_now() -> None:
    step = follow(begun(), 1)
    now = NOW + timedelta(seconds=5)
    assert advance(TRIED, step.desired, all_serve(step.desired), step.state, rules(), now).made == ()


def test_retunes_are_no_trial() -> None:
    target = {**OLD, "n1": a_node(replace_struct(OLD["n1"].instances[0], rate_per_second=120))}
    assert advance(target, OLD, all_serve(OLD), RolloutState(), RULES, NOW).made == ("old-1",)
