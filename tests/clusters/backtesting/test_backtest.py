"""A backtest beside a truth that is known: its bill, its attainment, and the limit that no search passes."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from random import Random

import pytest

from cli.estate.backtest import summarize_backtest
from clusters.backtesting import run_backtest
from clusters.backtesting.decisions import NOT_ANNOTATED, first_decision, replay_decisions
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.savings.floors import ReplicaBounds, draw_bounds
from tests.clusters.backtesting.replays import DAY_STEPS, HOURLY, PROMISE, WHOLE, backtest, falling, hourly
from tests.clusters.backtesting.truth import TrueWorkload, cheapest, draw_workload, simulate
from tests.clusters.made_up import autoscaler, leader_worker_set, node, pod, pod_spec
from tests.clusters.savings.fleets import STEP_SECONDS, assessed, named, nodes, served


def measured(workload: TrueWorkload) -> WorkloadSeries:
    """What a Prometheus would have of it."""
    steps = range(len(workload.ready))
    return WorkloadSeries(
        rates_per_second=tuple(sum(workload.step_minutes(step)) / 15 for step in steps),
        peaks_per_second=tuple(max(workload.step_minutes(step)) for step in steps),
        ready_replicas=workload.ready,
        latency_ms=tuple(workload.latency_ms(step) for step in steps),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_bill_and_the_attainment_are_those_of_a_simulated_week(seed: int) -> None:
    random = Random(seed)
    sizes = (1, 1, 2, 1)
    workloads = [draw_workload(random, f"w{at}", 7, random.randrange(4, 9), gpus) for at, gpus in enumerate(sizes)]
    places = {
        each.name: [f"n{3 * at + index % 3}" for index in range(each.ready[-1])] for at, each in enumerate(workloads)
    }
    items = nodes(14, 8)
    for each in workloads:
        items += served(each.name, places[each.name], each.gpus)
    found = backtest(items, {each.name: measured(each) for each in workloads}, HOURLY)

    estate, _ = assessed(items)
    first, decisions = first_decision(STEP_SECONDS), []
    for each in workloads:
        (workload,) = [other for other in estate.workloads if other.name == named(each.name)]
        bounds = draw_bounds(workload, estate.pods_of(workload.name), estate)
        assert isinstance(bounds, ReplicaBounds)
        decisions.append(
            replay_decisions(measured(each), PROMISE, bounds, each.ready[-1], STEP_SECONDS, first, NOT_ANNOTATED)
        )
    paid, attained = simulate(
        workloads, [each.decided for each in decisions], [each.most_per_node for each in decisions], 8, first
    )  # fmt: skip
    hours = found.hours
    assert len(hours) == 6 * 24
    planned = sum(hour.planned_nano for hour in hours) / len(hours) / 1e9
    assert planned == pytest.approx(10 * paid, rel=0.03)
    requests = sum(hour.judged.requests for hour in hours)
    judged = sum(hour.judged.served for hour in hours) / requests
    assert judged <= attained + 0.002
    assert attained > 0.995
    assert sum(hour.changes for hour in hours) / len(hours) / len(workloads) < 0.5


@pytest.mark.parametrize("seed", range(40))
def test_no_search_over_all_nodes_saves_more_than_the_limit(seed: int) -> None:
    random = Random(seed)
    steps = DAY_STEPS + 8
    kinds = {"big": (4, random.uniform(5, 20)), "small": (2, random.uniform(2, 9))}
    machines = [(f"n{at}", random.choice(("big", "small"))) for at in range(4)]
    items = [node(name, kinds[kind][0], f"NVIDIA-{kind.upper()}", kind) for name, kind in machines]
    prices = "prices: [" + ", ".join(f"{{instanceType: {kind}, perHour: {kinds[kind][1]:.6f}}}" for kind in kinds) + "]"
    loads: dict[str, WorkloadSeries] = {}
    asks: list[tuple[str, int, int, WorkloadSeries, float]] = []
    room = {name: kinds[kind][0] for name, kind in machines}
    for at in range(3):
        _, kind = random.choice(machines)
        gpus, least = random.choice((1, 2)), random.randrange(3)
        like = [other for other, its in machines if its == kind]
        places = [other for other in like for _ in range(room[other] // gpus)][: random.randrange(1, 4)]
        if not places:
            continue
        for place in places:
            room[place] -= gpus
        capacity = random.uniform(2, 50)
        ready = [random.randrange(1, len(places) + 1) for _ in range(steps)]
        rates = [count * capacity * random.uniform(0, 1) for count in ready]
        series = WorkloadSeries(tuple(rates), tuple(map(float, ready)), (50.0,) * steps)
        loads[f"w{at}"] = series
        items += served(f"w{at}", places, gpus)
        if least:
            items.append(autoscaler("shop", f"w{at}", least, 9))
        highest = max(rate / count for rate, count in zip(rates, ready, strict=True))
        asks.append((kind, gpus, min(least, len(places)), series, highest))
    found = backtest(items, loads, prices)
    assert len(found.hours) == 2
    paid = sum(kinds[kind][1] for _, kind in machines)
    offers = [(kind, *kinds[kind]) for _, kind in machines]
    for index, hour in enumerate(found.hours):
        best = 0.0
        for step in range(DAY_STEPS + 4 * index, DAY_STEPS + 4 * index + 4):
            needs = [
                (kind, gpus, max(least, ceil((series.rates_per_second[step] or 0) / highest - 1e-9)))
                for kind, gpus, least, series, highest in asks
            ]
            best += cheapest(needs, offers) / 4
        assert hour.limit_nano / 1e9 >= paid - best - 1e-6


def test_decisions_do_not_know_what_comes() -> None:
    random = Random(7)
    whole = measured(draw_workload(random, "a", 3, 8))
    other = measured(draw_workload(random, "b", 3, 8))
    cut = 200
    mixed = replace(whole, **{
        field: getattr(whole, field)[:cut] + getattr(other, field)[cut:]
        for field in ("rates_per_second", "peaks_per_second", "ready_replicas", "latency_ms")
    })  # fmt: skip
    bounds = ReplicaBounds(1, "the rule that one stays")
    found = [
        replay_decisions(each, PROMISE, bounds, 4, STEP_SECONDS, DAY_STEPS, NOT_ANNOTATED).decided
        for each in (whole, mixed)
    ]
    assert found[0][: cut + 1] == found[1][: cut + 1]
    assert found[0] != found[1]


def test_a_latency_that_comes_later_changes_no_earlier_hour_where_no_slo_is_given() -> None:
    workload = draw_workload(Random(7), "a", 3, 8)
    whole = measured(workload)
    slower = replace(whole, latency_ms=(*whole.latency_ms[:192], *[9000.0] * (len(whole.latency_ms) - 192)))
    estate, bill = assessed([*nodes(4, 4), *served("a", ["n0", "n1", "n2", "n3"])], HOURLY)
    passing = {each.name: (0.0,) * len(whole.ready_replicas) for each in estate.nodes}
    planned = []
    for series in (whole, slower):
        loads = MeasuredLoads(0.0, STEP_SECONDS, len(passing["n0"]), "test", {named("a"): series}, passing)
        planned.append(
            [(hour.planned_nano, hour.changes) for hour in run_backtest(estate, bill, loads, {}, WHOLE, {}).hours]
        )
    assert planned[0][:24] == planned[1][:24]
    assert planned[0] != planned[1]


def test_nodes_of_the_time_before_the_first_decision_are_not_said_to_be_added() -> None:
    high, low = falling(6, 2), [*nodes(1, 2), *served("a", ["n0", "n0"])]
    assert backtest(low, {"a": high}, HOURLY).added_nodes == 2
    calm = replace(
        high, ready_replicas=tuple(count if step < 60 else 2.0 for step, count in enumerate(high.ready_replicas))
    )
    assert (found := backtest(low, {"a": calm}, HOURLY, 3600)).added_nodes == 0
    assert found.moves == 0


def test_nodes_end_once_they_are_empty_and_committed_ones_are_paid_anyway() -> None:
    items = [*nodes(3, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"])]
    found = backtest(items, {"a": falling(6, 2)}, HOURLY)
    assert hourly(found) == [22.5, *[20.0] * 11]  # a quarter of an hour until the node ends
    (workload,) = found.workloads
    assert workload.last_reason.endswith("shown for each: 2; 2 more for a lost node")
    assert (workload.changes, workload.mean_then, workload.mean_decided) == (1, 6.0, 4.0)
    owned = backtest(items, {"a": falling(6, 2)}, "reservations: [{instanceType: big, count: 3, perHour: 10}]")
    assert {*hourly(owned)} == {30.0}


def test_a_shorter_time_shows_its_last_hours_and_what_stood_until_then_stands() -> None:
    items = [*nodes(3, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"])]
    found = backtest(items, {"a": falling(6, 2)}, HOURLY, 3 * 3600)
    assert hourly(found) == [22.5, 20.0, 20.0]
    assert found.hours[0].start == (DAY_STEPS + 36) * STEP_SECONDS


def test_a_node_is_paid_for_as_long_as_it_stood_and_one_that_is_gone_is_named() -> None:
    items = [*nodes(4, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"])]
    items.append(pod("shop", "notebook", pod_spec("image:1", 1), "n3"))
    always = (1.0,) * (DAY_STEPS + 48)
    late = tuple(0.0 if step < DAY_STEPS + 5 else 0.5 if step == DAY_STEPS + 5 else 1.0 for step in range(len(always)))
    standing = {"n0": always, "n1": always, "n2": always, "n3": late, "old": late}
    found = backtest(items, {"a": falling(6, 2)}, HOURLY, standing=standing)
    assert [hour.paid_nano / 1e9 for hour in found.hours[:3]] == [30.0, 30 + 10 * 2.5 / 4, 40.0]
    assert hourly(found)[:3] == [22.5, 20 + 10 * 3 / 4, 30.0]  # what stays as it is keeps its node once it stands
    assert all(hour.paid_nano - hour.planned_nano <= hour.limit_nano for hour in found.hours)
    assert found.gone_nodes == 1
    assert "More was paid than that: 1 node with GPUs ran then and not now" in list(summarize_backtest(found, "USD"))[1]
    unknown = backtest(items, {"a": falling(6, 2)}, HOURLY)
    assert [hour.paid_nano / 1e9 for hour in unknown.hours[:3]] == [40.0] * 3
    assert "those of now count as paid all the time" in str(unknown.unknown[0])


def test_what_is_added_serves_only_once_it_has_started() -> None:
    low = falling(6, 2)
    jump = DAY_STEPS + 14
    series = replace(low, rates_per_second=(*low.rates_per_second[:jump], *[54.0] * (DAY_STEPS + 48 - jump)))
    found = backtest([*nodes(3, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"])], {"a": series}, HOURLY)
    # Two steps at 14 a second; one that brings the load, and one in which what it calls for starts.
    assert [hour.judged.attainment for hour in found.hours[2:5]] == [1.0, pytest.approx(28 / (28 + 108)), 1.0]
    assert {hour.judged_then.attainment for hour in found.hours} == {1.0}
    assert found.hours[3].changes == 1


def test_gaps_in_a_load_keep_the_number_and_are_said() -> None:
    whole = falling(6, 2)
    gap = DAY_STEPS - 1, DAY_STEPS + 7
    rates = tuple(None if gap[0] <= step < gap[1] else rate for step, rate in enumerate(whole.rates_per_second))
    items = [*nodes(3, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"])]
    found = backtest(items, {"a": replace(whole, rates_per_second=rates)}, HOURLY)
    assert hourly(found)[:4] == [30.0, 30.0, 25.0, 20.0]  # two hours are not known; then half an hour must be calm
    assert [hour.judged.attainment for hour in found.hours[:3]] == [None, 1.0, 1.0]
    assert "its load is known for 94 % of the steps" in str(found.unknown[-1])


def test_groups_of_several_pods_come_and_go_as_one_the_last_first() -> None:
    groups = [["n0", "n1"], ["n2", "n3"], ["n4", "n5"]]
    items = [*nodes(6, 4), *leader_worker_set("shop", "big", pod_spec("image:1", 4), groups)]
    name = named("big", "LeaderWorkerSet")
    estate, bill = assessed(items, HOURLY)
    series = falling(3, 1)
    loads = MeasuredLoads(0.0, STEP_SECONDS, len(series.rates_per_second), "test", {name: series}, {
        each.name: (0.0,) * len(series.rates_per_second) for each in estate.nodes
    })  # fmt: skip
    found = run_backtest(estate, bill, loads, {name: PROMISE}, WHOLE, {})
    assert hourly(found) == [45.0, *[40.0] * 11]  # two groups of two nodes: one serves, whichever node is lost


def test_hours_without_a_known_request_say_so() -> None:
    young = WorkloadSeries((None,) * 180 + (5.0,) * 12, (None,) * 180 + (2.0,) * 12, (None,) * 180 + (50.0,) * 12)
    found = backtest([*nodes(3, 2), *served("a", ["n0", "n1"])], {"a": young}, HOURLY)
    assert found.hours
    assert "No request is known to have come; 0 changes an hour" in list(summarize_backtest(found, "USD"))[1]


def test_what_is_not_decided_says_why() -> None:
    items = [*nodes(3, 2), *served("a", ["n0", "n1"])]
    found = backtest(items, {"a": WorkloadSeries((5.0,) * 20, (2.0,) * 20, (50.0,) * 20)}, HOURLY)
    assert "a day is needed" in found.workloads[0].why_not
    assert not found.hours
    assert "its first day is what it learns from" in found.unknown[0].reason


def test_a_load_above_max_replicas_saves_no_more_than_the_limit() -> None:
    items = [*nodes(3, 1), *served("a", ["n0", "n1", "n2"]), autoscaler("shop", "a", 1, 1)]
    found = backtest(items, {"a": WorkloadSeries((27.0,) * 144, (3.0,) * 144, (50.0,) * 144)}, HOURLY)
    assert found.hours[-1].planned_nano == 10**10
    assert all(hour.paid_nano - hour.planned_nano <= hour.limit_nano for hour in found.hours)


def test_what_has_not_been_seen_ready_yet_saves_no_more_than_the_limit() -> None:
    counts = [2] * (DAY_STEPS + 4) + [4] * 44
    series = WorkloadSeries(tuple(9.0 * count for count in counts), tuple(map(float, counts)), (50.0,) * len(counts))
    found = backtest([*nodes(4, 1), *served("a", ["n0", "n1", "n2", "n3"])], {"a": series}, HOURLY)
    assert hourly(found)[:3] == [20.0, 35.0, 40.0]  # four have been seen once the first of their steps is over
    assert [hour.limit_nano / 1e9 for hour in found.hours[:3]] == pytest.approx([20.0, 5.0, 0.0], abs=1e-6)
