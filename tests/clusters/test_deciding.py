"""How many replicas a workload should have, by what is known until now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.deciding import KnownLoad, ReplicaDecision, StandingReplicas, decide_replicas, know_load
from clusters.measured import LatencyPromise, WorkloadSeries
from clusters.savings.floors import ReplicaBounds, draw_bounds
from clusters.savings.shown import ShownRate
from tests.clusters.made_up import autoscaler, budget
from tests.clusters.savings.fleets import assessed, even, named, nodes, served

STEP = 900
SHOWN = ShownRate(18.2, 1, None, None, 0)
FREE = ReplicaBounds(1, "the rule that one stays")


def load(*rates: float | None, shown: Sequence[ShownRate] = (SHOWN,), **more: object) -> KnownLoad:
    return replace(KnownLoad(rates, STEP, shown, 99), **more)  # type: ignore[arg-type]


def decided(
    known: KnownLoad | str, now: int, bounds: ReplicaBounds | str = FREE, ready: int | None = None, ago: float = 1e9
) -> ReplicaDecision:
    return decide_replicas(known, bounds, StandingReplicas(now, now if ready is None else ready, ago))


def test_it_goes_up_at_once_by_the_peak_of_late_with_headroom_and_says_why() -> None:
    found = decided(load(*[69.9] * 20), 3, ago=0.0)
    assert (found.replicas, found.reason) == (5, "peak of 74.4/s in the next 25 minutes, 18.2/s shown for each: 5")


def test_a_load_that_climbs_is_met_before_it_is_there() -> None:
    climbing = [20.0 + 2 * step for step in range(24)]
    found = decided(load(*climbing), 3)
    assert found.expected_per_second and found.expected_per_second > climbing[-1] * 1.1
    assert found.replicas * SHOWN.rate_per_second > climbing[-1] + 2


def test_it_comes_down_once_half_an_hour_did_not_need_it_and_not_sooner() -> None:
    falling = [80.0] * 20
    counts = []
    now, ago = 5, 1e9
    for rate in [80.0, 20.0, 20.0, 20.0, 20.0]:
        falling.append(rate)
        found = decided(load(*falling), now, ago=ago)
        ago = STEP if found.replicas != now else ago + STEP
        now = found.replicas
        counts.append(now)
    assert counts == [5, 5, 2, 2, 2]


@pytest.mark.parametrize(
    ("known", "standing", "why"),
    [
        (load(*[20.0] * 8), {"ago": 1700.0}, "4 stay, as the number changed less than 30 minutes ago"),
        (load(*[20.0] * 8), {"ready": 3}, "4 stay, as 3 of 4 are ready"),
        (load(*[20.0] * 6, None, 20.0), {}, "4 stay, as its load of the last 30 minutes has gaps"),
        (load(*[20.0] * 8, reporting=2), {}, "4 stay, as only 2 of 4 report their load"),
        (load(*[20.0] * 6, 0.0), {}, "4 stay, as nothing was answered just now, after load in the last 6 hours"),
        (load(*[20.0] * 8, was_missed=True), {}, "4 stay, as its SLO was missed just now"),
        (load(*[20.0] * 8, None), {}, "its load of the last 15 minutes is not known, so 4 stay"),
        (load(*[20.0] * 8, shown=()), {}, "and no rate is shown within its SLO at such lengths, so 4 stay"),
        (load(*[20.0] * 8, input_tokens=900.0), {}, "and no rate is shown within its SLO at such lengths, so 4 stay"),
        ("its load was measured for 6 hours, and a day is needed", {},
         "its load was measured for 6 hours, and a day is needed, so 4 stay"),
    ],
)  # fmt: skip
def test_what_is_not_known_or_not_calm_keeps_the_number(known: KnownLoad | str, standing: dict, why: str) -> None:  # type: ignore[type-arg]
    found = decided(known, 4, **standing)
    assert found.replicas == 4
    assert found.reason.endswith(why)


def test_no_more_replicas_are_decided_than_were_ever_ready_unless_somebody_says_how_many() -> None:
    tiny = load(*[0.63] * 20, shown=[ShownRate(0.0067, 1, None, None, 0)], most_ready=8)
    found = decided(tiny, 6)
    assert found.replicas == 8
    assert found.reason.endswith("8 by what has been seen ready, as no maxReplicas allows more")
    assert decided(tiny, 6, replace(FREE, most=50, most_reason="maxReplicas of HPA a")).replicas == 50


def test_a_miss_of_hardly_any_requests_strikes_out_no_rate() -> None:
    for rate, shown in ((0.01, [9.0, 0.1]), (0.1, [])):  # a second and replica: 9 requests, or 90
        series = WorkloadSeries(
            (9.0,) * 48 + (rate,) + (9.0,) * 46 + (rate,), (1.0,) * 96, (50.0,) * 48 + (400.0,) + (50.0,) * 47
        )
        known = know_load(series, LatencyPromise(100.0, "test"), STEP)
        assert isinstance(known, KnownLoad)
        assert [each.rate_per_second for each in known.shown][:1] == shown[:1]


def test_bounds_and_the_loss_of_a_node_have_their_words() -> None:
    bounds = ReplicaBounds(4, "minReplicas of HPA a", 6, "maxReplicas of HPA a", survivors=4)
    assert [(found.replicas, found.reason.partition(": ")[2]) for found in (
        decided(load(*[rate] * 8), 5, bounds) for rate in (10.0, 45.0, 60.0, 200.0)
    )] == [
        (4, "1; one more for a lost node; 4 by minReplicas of HPA a"),
        (4, "3; one more for a lost node"),
        (5, "4; one more for a lost node"),
        (6, "12; 6 by maxReplicas of HPA a"),
    ]  # fmt: skip


def test_bounds_are_read_from_the_estate() -> None:
    places = ["n0", "n1", "n2", "n3"]
    rules = [autoscaler("shop", "search", 2, 9), budget("shop", "search", minAvailable=2)]
    for items, least, most in ((rules, 3, 9), (rules[:1], 2, 9), ([], 1, None)):
        estate, _ = assessed([*nodes(4, 1), *served("search", places), *items])
        (workload,) = estate.workloads
        bounds = draw_bounds(workload, estate.pods_of(named("search")), estate)
        assert isinstance(bounds, ReplicaBounds)
        assert (bounds.least, bounds.most, bounds.survivors, bounds.together) == (least, most, 3, 1)


def test_a_series_is_known_once_it_has_a_day_and_only_by_what_it_showed_until_then() -> None:
    day = even(10.0, 4, few={40: 1})
    promise = LatencyPromise(100.0, "test")
    assert know_load(cut(day, 95), promise, STEP) == "its load was measured for 23.75 hours, and a day is needed"
    known = know_load(day, promise, STEP)
    assert isinstance(known, KnownLoad)
    assert [(shown.replicas, shown.rate_per_second) for shown in known.shown] == [(1, 10.0)]
    assert decided(known, 4).replicas == 2  # ten a second, with some headroom


def cut(series: WorkloadSeries, steps: int) -> WorkloadSeries:
    return WorkloadSeries(
        series.rates_per_second[:steps], series.ready_replicas[:steps], series.latency_ms[:steps]
    )  # fmt: skip


@given(
    rates=st.lists(st.floats(0, 500), min_size=8, max_size=40), now=st.integers(1, 40), least=st.integers(1, 5),
    more=st.integers(0, 30), together=st.integers(1, 3), nodes=st.integers(1, 4),
)  # fmt: skip
def test_a_number_is_within_its_bounds_and_serves_the_last_step(
    rates: list[float], now: int, least: int, more: int, together: int, nodes: int
) -> None:
    standing = together * nodes
    bounds = ReplicaBounds(least, "least", least + more, "most", standing - together, together)
    found = decided(load(*rates), now, bounds)
    assert least <= found.replicas <= max(least + more, now)
    left = found.replicas - found.most_per_node
    needed = rates[-1] / SHOWN.rate_per_second
    assert found.replicas >= min(needed, least + more) - 1e-9
    assert found.replicas >= bounds.most or left >= min(needed, bounds.survivors) - 1e-9  # type: ignore[operator]


def test_a_load_that_scatters_about_a_boundary_does_not_flap() -> None:
    scatter = [17.0, 18.6, 16.8, 18.9, 17.4, 18.3] * 20
    now, ago, counts = 1, 1e9, []
    for end in range(8, len(scatter)):
        found = decided(load(*scatter[max(0, end - 24) : end]), now, ago=ago)
        ago = STEP if found.replicas != now else ago + STEP
        now = found.replicas
        counts.append(now)
    assert sum(before != after for before, after in pairwise(counts)) <= 1


def test_a_rate_counts_again_once_a_better_one_is_contradicted() -> None:
    rates = (*[10.0] * 10, *[20.0] * 10, 18.0, *[10.0] * 75)
    latencies = (*[50.0] * 20, 400.0, *[50.0] * 75)
    series = WorkloadSeries(rates, (2.0,) * 96, latencies)
    promise = LatencyPromise(100.0, "test")
    before, after = (know_load(cut(replaced, 96), promise, STEP) for replaced in (
        replace(series, latency_ms=(50.0,) * 96), series
    ))  # fmt: skip
    assert isinstance(before, KnownLoad)
    assert isinstance(after, KnownLoad)
    assert [shown.rate_per_second for shown in before.shown] == [10.0]
    assert [shown.rate_per_second for shown in after.shown] == [5.0]
