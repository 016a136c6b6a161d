"""The heuristic over time, and the promise (RT_max, SL_min)."""

from __future__ import annotations

from dataclasses import replace

from solvers.hetsev.scaling import InstanceType, ScalingProblem, ScalingPromise
from solvers.hetsev.scaling.controller import ScalingRules, ScalingWatch, decide

V100 = InstanceType("v100", 100.0, 60.0, 4.0, 0.191, running=1)
T4 = InstanceType("t4", 40.0, 200.0, 2.0, 0.024, running=1)


def at(rate: float, *kinds: InstanceType) -> ScalingProblem:
    return ScalingProblem(rate, ScalingPromise(400.0), kinds or (V100, T4))


def test_a_high_load_is_answered_only_after_it_has_lasted() -> None:
    actions, watch = decide(at(130.0), ScalingWatch(), 0.0)
    assert (actions, watch) == ({}, ScalingWatch(over_since=0.0))
    actions, watch = decide(at(130.0), watch, 29.0)
    assert actions == {}
    actions, watch = decide(at(130.0), watch, 30.0)
    assert actions == {"t4": 1}  # 130 / 0.8 - 140 = 22.5 more a second, by the cheapest type
    assert watch == ScalingWatch()


def test_a_spike_that_ends_restarts_the_wait() -> None:
    _, watch = decide(at(130.0), ScalingWatch(), 0.0)
    _, watch = decide(at(100.0), watch, 15.0)
    actions, watch = decide(at(130.0), watch, 31.0)
    assert actions == {}
    assert watch == ScalingWatch(over_since=31.0)


def test_the_load_is_at_80_percent_or_less_after_scaling_out() -> None:
    actions, _ = decide(at(300.0), ScalingWatch(over_since=0.0), 30.0)
    assert actions == {"t4": 6}
    assert 300.0 / (140.0 + 6 * 40.0) <= 0.8


def test_a_full_fleet_stays_overdue_and_acts_once_there_is_room() -> None:
    full = at(130.0, replace(V100, most=1), replace(T4, most=1))
    actions, watch = decide(full, ScalingWatch(over_since=0.0), 60.0)
    assert (actions, watch) == ({}, ScalingWatch(over_since=0.0))
    assert decide(at(130.0), watch, 61.0)[0] == {"t4": 1}


def test_the_dearest_spare_instance_stops_after_the_cool_down() -> None:
    actions, watch = decide(at(30.0), ScalingWatch(), 0.0)
    assert (actions, watch) == ({}, ScalingWatch(spare_since=0.0))
    actions, watch = decide(at(30.0), watch, 300.0)
    assert actions == {"v100": -1}
    state = at(30.0, replace(V100, running=0), T4)
    assert decide(state, watch, 301.0)[0] == {}  # 30 / 40 is within 80 %, nothing is not


def test_of_two_spare_instances_the_second_waits_for_its_own_cool_down() -> None:
    spare = at(30.0, replace(V100, running=2), T4)
    actions, watch = decide(spare, ScalingWatch(spare_since=0.0), 300.0)
    assert actions == {"v100": -1}
    state = at(30.0, V100, T4)
    for now_seconds in (301.0, 302.0, 599.0):
        actions, watch = decide(state, watch, now_seconds)
        assert actions == {}
    assert decide(state, watch, 600.0)[0] == {"v100": -1}


def test_a_dearer_instance_is_kept_where_the_rest_could_not_serve_the_load() -> None:
    assert decide(at(70.0), ScalingWatch(spare_since=0.0), 300.0)[0] == {"t4": -1}


def test_a_running_instance_is_never_replaced_by_a_cheaper_type() -> None:
    only_dear = at(70.0, V100, replace(T4, running=0))
    actions, watch = decide(only_dear, ScalingWatch(spare_since=0.0), 1000.0)
    assert (actions, watch) == ({}, ScalingWatch())


def test_a_decision_depends_on_time_and_state_alone() -> None:
    rules = ScalingRules(saturation=0.5, held_seconds=5.0)
    assert decide(at(90.0), ScalingWatch(over_since=1.0), 6.0, rules) == decide(
        at(90.0), ScalingWatch(over_since=1.0), 6.0, rules
    )
    assert decide(at(90.0), ScalingWatch(over_since=1.0), 6.0, rules)[0] == {"t4": 1}
