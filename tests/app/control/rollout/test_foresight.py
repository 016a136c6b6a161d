"""What services lack in the next minutes is foreseen by the steps of a rollout and the time that each start takes."""

from __future__ import annotations

import pytest

from app.control.rollout.ordering.foresight import SOON_SECONDS, foresee_shortfalls
from tests.app.control.rollout.fleets import a_node, an_instance, rules

RULES = rules(start_seconds={"m-search/fp16/v100": 30.0, "m-ads/fp16/v100": 60.0})
RUNS = an_instance("s1", rate=100)


def test_what_is_assigned_serves_and_what_it_lacks_is_lacking_for_all_the_time() -> None:
    assigned = {"n1": a_node(RUNS)}
    assert foresee_shortfalls(assigned, assigned, RULES, {"shop/search": 100.0}) == {}
    lacking = foresee_shortfalls(assigned, assigned, RULES, {"shop/search": 130.0, "shop/ads": 7.0})
    assert lacking == pytest.approx({"shop/search": 30.0, "shop/ads": 7.0})


def test_a_copy_serves_once_the_seconds_of_its_profile_have_passed() -> None:
    target = {"n1": a_node(RUNS), "n2": a_node(an_instance("s2", rate=50))}
    lacking = foresee_shortfalls({"n1": a_node(RUNS)}, target, RULES, {"shop/search": 150.0})
    assert lacking == pytest.approx({"shop/search": 50.0 * 30 / (2 * SOON_SECONDS)})


def test_a_start_that_waits_for_room_comes_after_what_makes_the_room() -> None:
    old, new = an_instance("a1", "ads", sm=100), an_instance("a2", "ads", sm=60)
    late = an_instance("s2", sm=80, rate=50)
    assigned = {"n1": a_node(RUNS), "n2": a_node(old)}
    target = {"n1": a_node(RUNS, new), "n2": a_node(late)}
    lacking = foresee_shortfalls(assigned, target, RULES, {"shop/search": 150.0, "shop/ads": 100.0})
    assert lacking == pytest.approx({"shop/search": 50.0 * (60 + 30) / (2 * SOON_SECONDS)})


def test_changes_that_wait_for_each_other_bring_nothing() -> None:
    here = {"n1": a_node(an_instance("s1", sm=100)), "n2": a_node(an_instance("a1", "ads", sm=100))}
    there = {"n1": a_node(an_instance("a2", "ads", sm=100)), "n2": a_node(an_instance("s2", sm=100, rate=150))}
    lacking = foresee_shortfalls(here, there, RULES, {"shop/search": 150.0, "shop/ads": 100.0})
    assert lacking == pytest.approx({"shop/search": 50.0})


def test_a_start_that_takes_longer_than_that_is_better_than_none() -> None:
    slow = rules(start_seconds={"m-search/fp16/v100": 2 * SOON_SECONDS})
    target = {"n1": a_node(RUNS), "n2": a_node(an_instance("s2", rate=50))}
    lacking = foresee_shortfalls({"n1": a_node(RUNS)}, target, slow, {"shop/search": 150.0})
    assert lacking == pytest.approx({"shop/search": 25.0})
