"""The load of services: gateways before nodes, nothing counted twice, and no decline for lack of news."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from app.control.observe.loads.loads import Loads
from app.store.fleet.loads import LoadHistory
from solvers.forecast import MarginRules
from tests.support.words import at, gateway, readings, received_report, served

SEARCH = "shop/search"


def run(loads: Loads, start: int, stop: int, rate: Callable[[int], float] = lambda _: 20.0, node: str = "n") -> None:
    """One node that reports every ten seconds, and a look each second."""
    count = 0.0
    for second in range(start, stop):
        count = 0.0 if second % 60 == 0 else count + rate(second)
        found_reports = [received_report(node, second, served(round(count)))] if second % 10 == 9 else []
        loads.take(readings(second, *found_reports))


def expected(loads: Loads, seconds: float, planned: float = 20.0, declared: float = 20.0) -> float:
    return loads.expect({SEARCH: declared}, {SEARCH: planned}, {SEARCH: 50.0}, at(seconds), {})[SEARCH].rate_per_second


def test_nodes_rates_add_up() -> None:
    loads = Loads()
    for second in (10, 20, 30):
        loads.take(readings(second, *(received_report(f"n{node}", second, served(10 * second)) for node in range(3))))
    recent = loads.recent(SEARCH)
    assert recent is not None
    assert recent.rate_per_second == pytest.approx(30)


def test_a_snapshot_holds_the_scores_that_its_margin_was_learned_from() -> None:
    loads = Loads()
    loads.set_slos({SEARCH: 50.0}, {SEARCH: 99.0}, {SEARCH: MarginRules(0.2, 0.01)})
    rates = [20.0 * (1.5 if second % 1800 > 1500 else 1.0) for second in range(4 * 3600)]
    for begin in range(0, 4 * 3600, 60):
        run(loads, begin, begin + 60, rates.__getitem__)
        loads.expect({SEARCH: 20.0}, {SEARCH: 20.0}, {SEARCH: 50.0}, at(begin + 60), {})
    known = loads.expect({SEARCH: 20.0}, {SEARCH: 20.0}, {SEARCH: 50.0}, at(4 * 3600), {})[SEARCH]
    assert known.margin > 0
    assert known.scores.margin(known.risk) == known.margin
    assert known.risen_margin is not None  # each wave has its rise
    assert known.plan_at_risk(known.risk).rate_per_second == known.rate_per_second
    rare, often = known.plan_at_risk(0.01), known.plan_at_risk(0.5)
    assert often.rate_per_second <= known.rate_per_second <= rare.rate_per_second
    assert often.margin <= known.margin <= rare.margin
    new = Loads()
    new.restore_margins({SEARCH: known})
    new.set_slos({SEARCH: 50.0}, {SEARCH: 99.0}, {SEARCH: MarginRules(0.2, 0.01)})
    begun = new.expect({SEARCH: 20.0}, {SEARCH: 20.0}, {SEARCH: 50.0}, at(4 * 3600), {})[SEARCH]
    assert (begun.margin, begun.scores) == (known.margin, known.scores)
    assert (begun.missed_hours, begun.known_hours) == (known.missed_hours, known.known_hours)


def test_where_a_gateway_speaks_of_a_service_nodes_do_not_count() -> None:
    loads = Loads()
    loads.set_slos({SEARCH: 50.0}, {SEARCH: 98.0})
    for second in (10, 20, 30):
        loads.take(
            readings(
                second, received_report("n", second, served(10 * second)), gateway("g", second, search=12 * second)
            )
        )
    recent = loads.recent(SEARCH)
    assert recent is not None
    assert recent.rate_per_second == pytest.approx(12)
    assert recent.answers == 120


def test_two_gateways_each_have_their_share() -> None:
    loads = Loads()
    for second in range(5):
        loads.take(readings(second, gateway("g", second, search=10 * second), gateway("h", second, search=5 * second)))
    recent = loads.recent(SEARCH)
    assert recent is not None
    assert recent.rate_per_second == pytest.approx(15)


def test_a_gateway_gone_leaves_the_word_to_nodes() -> None:
    loads = Loads()
    for second in range(0, 40, 10):
        loads.take(
            readings(
                second, received_report("n", second, served(10 * second)), gateway("g", second, search=12 * second)
            )
        )
    for second in (40, 50):
        loads.take(readings(second, received_report("n", second, served(10 * second))))
    recent = loads.recent(SEARCH)
    assert recent is not None
    assert recent.rate_per_second == pytest.approx(10)


def test_a_node_that_falls_silent_is_presumed_to_serve_for_a_while() -> None:
    loads = Loads()
    run(loads, 0, 120)
    loads.take(readings(150))
    held = loads.recent(SEARCH)
    assert held is not None
    assert held.rate_per_second == pytest.approx(20, rel=0.02)
    loads.take(readings(200))
    assert loads.recent(SEARCH) is None
    assert expected(loads, 300, planned=40, declared=10) == pytest.approx(40)


def test_answers_are_held_against_the_slo() -> None:
    loads = Loads()
    loads.set_slos({SEARCH: 50.0}, {SEARCH: 98.0})
    loads.take(readings(10, received_report("n", 10, served(0))))
    answers = served(100, latencyCounts=[0] * 5 + [90] + [0] * 40 + [6], errors=4)
    loads.take(readings(20, received_report("n", 20, answers)))
    recent = loads.recent(SEARCH)
    assert recent is not None
    assert recent.within_slo == pytest.approx(0.9)


def test_attainment_is_unknown_without_an_slo_or_answers() -> None:
    loads = Loads()
    loads.take(readings(10, received_report("n", 10, served(0))))
    recent = loads.recent(SEARCH)
    assert recent is not None
    assert recent.within_slo is None


def test_a_steady_load_is_expected_as_it_was_planned() -> None:
    loads = Loads()
    run(loads, 0, 2400)
    assert expected(loads, 2400) == 20.0


def test_a_rate_that_was_held_back_does_not_grow_with_each_cycle() -> None:
    loads = Loads()
    run(loads, 0, 2400, lambda _: 5.0)
    first = expected(loads, 2400)
    assert first == pytest.approx(5 * (1.05 + 3 / math.sqrt(3000)), rel=0.05)
    run(loads, 2400, 2460, lambda _: 5.0)
    assert expected(loads, 2460, planned=20.0) == first


def test_what_the_fast_lane_planned_is_not_undone_at_once() -> None:
    loads = Loads()
    run(loads, 0, 2400)
    assert expected(loads, 2400) == 20.0
    run(loads, 2400, 2430)
    assert expected(loads, 2430, planned=40.0) == 40.0


def test_what_was_added_while_promises_are_missed_is_not_taken_back_before_they_are_kept() -> None:
    loads = Loads()
    loads.set_slos({SEARCH: 5.0}, {SEARCH: 98.0})  # every answer takes 10 ms
    run(loads, 0, 2400)
    expected(loads, 2400)
    assert expected(loads, 2401, planned=40.0) == 40.0
    run(loads, 2401, 3000)
    assert expected(loads, 3000, planned=40.0) == 40.0
    loads.set_slos({SEARCH: 50.0}, {SEARCH: 98.0})
    run(loads, 3000, 3200)
    assert expected(loads, 3200, planned=40.0) == 40.0
    run(loads, 3200, 3600)
    assert expected(loads, 3601, planned=40.0) == pytest.approx(21, rel=0.05)


def test_missed_promises_are_no_sign_of_load() -> None:
    loads = Loads()
    loads.set_slos({SEARCH: 5.0}, {SEARCH: 98.0})  # every answer takes 10 ms
    run(loads, 0, 1200, lambda _: 200.0)
    expected(loads, 1200, planned=200.0, declared=200.0)
    run(loads, 1200, 1219, lambda second: 220.0 if second < 1210 else 200.0)  # ten seconds of noise
    assert expected(loads, 1219, planned=200.0, declared=200.0) == 200.0


def test_a_declared_rate_that_is_raised_is_a_floor_again() -> None:
    loads = Loads()
    run(loads, 0, 2400, lambda _: 5.0)
    expected(loads, 2400)
    assert expected(loads, 2401, declared=80.0) == 80.0


def test_buckets_hold_what_came_and_are_given_once() -> None:
    loads = Loads()
    loads.set_slos({SEARCH: 50.0}, {SEARCH: 98.0})
    run(loads, 0, 301)
    full = loads.full()
    assert len(full) in range(27, 31)
    assert sum(bucket.requests for bucket in full) == pytest.approx(
        20 * sum(bucket.seconds for bucket in full), rel=0.03
    )
    assert sum(sum(bucket.latency_counts) for bucket in full) == pytest.approx(20 * 290, rel=0.05)
    assert {bucket.slow for bucket in full} == {0.0}
    assert loads.full() == []


def test_buckets_have_the_planned_rate_once_a_plan_is_known() -> None:
    loads = Loads()
    run(loads, 0, 31)
    assert {bucket.planned for bucket in loads.full()} == {None}
    expected(loads, 31, planned=0.0)
    run(loads, 31, 61)
    assert {bucket.planned for bucket in loads.full()} == {None}, "no plan is in force"
    expected(loads, 61, planned=25.0)
    run(loads, 61, 91)
    full = loads.full()
    assert full and all(bucket.planned == pytest.approx(25.0 * bucket.seconds) for bucket in full)


def test_a_new_leader_continues_from_the_stored_history() -> None:
    old = Loads()
    run(old, 0, 2400, lambda _: 5.0)
    kept = old.full()
    course = LoadHistory(
        SEARCH, [bucket.at.timestamp() for bucket in kept], [bucket.seconds for bucket in kept],
        [bucket.requests for bucket in kept],
        sum(bucket.seconds for bucket in kept),
    )  # fmt: skip
    new = Loads()
    new.restore([course])
    assert expected(new, 2405) == pytest.approx(expected(old, 2405), rel=0.02)


def test_no_number_that_is_none_reaches_a_forecast() -> None:
    loads = Loads()
    run(loads, 0, 600)
    loads.take(readings(609, received_report("n", 609, served(10**12, latencyCounts=[10**12]))))
    assert loads.dropped == 1
    assert math.isfinite(expected(loads, 610))
    assert expected(loads, 610) == 20.0


def test_a_long_sleep_is_no_load() -> None:
    loads = Loads()
    run(loads, 0, 600)
    loads.take(readings(4200))
    assert sum(bucket.seconds for bucket in loads.full()) < 700


def test_load_above_the_plan_gives_a_margin_and_a_late_answer_gives_none() -> None:
    def margins(rate: Callable[[int], float], risk: float) -> float:
        loads = Loads()
        loads.set_slos({SEARCH: 5.0}, {SEARCH: 98.0}, {SEARCH: MarginRules(risk)})  # every answer takes 10 ms
        for begin in range(0, 5400, 30):
            run(loads, begin, begin + 30, rate)
            found = loads.expect({SEARCH: 20.0}, {SEARCH: 20.0}, {SEARCH: 50.0}, at(begin + 30), {})[SEARCH]
        assert found.risk == risk
        return found.margin

    assert margins(lambda _: 20.0, 0.02) == 0.0
    assert margins(lambda second: 60.0 if second % 1800 > 1600 else 20.0, 0.02) > 0.0
