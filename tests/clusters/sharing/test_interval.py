"""The interval of level L1: what it follows from, what keeps nodes, and how missing metrics widen it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from clusters.gpu_use import MeasuredGpu
from clusters.measured import LatencyPromise, MeasuredLoads, WorkloadSeries
from clusters.metrics.gpu_metrics import ACTIVITIES
from clusters.savings import find_savings
from clusters.sharing import SharingEstimate, estimate_sharing
from clusters.sharing.worth import find_worths
from tests.clusters.made_up import Item, autoscaler
from tests.clusters.savings.fleets import STEP_SECONDS, STEPS, assessed, day, named, nodes, served

TEN = [f"n{at // 2}" for at in range(10)]  # a replica on each of ten GPUs, two on a node


def gpu(place: str, at: int, active: float | None, *holders: str, metric: str = ACTIVITIES[0][0]) -> MeasuredGpu:
    return MeasuredGpu(f"{place}-{at}", place, tuple(map(named, holders)), len(holders), 4.0, active, None, metric)


def gpus_of(name: str, active: float | None, places: Sequence[str] = TEN, **more: str) -> list[MeasuredGpu]:
    return [gpu(place, at, active, name, **more) for at, place in enumerate(places)]


def evenly(rate: float = 50.0, ready: int = 10, latency: float = 20.0) -> WorkloadSeries:
    return day([rate] * STEPS, [float(ready)] * STEPS, [latency] * STEPS)


def shared(items: Sequence[Item], gpus: Sequence[MeasuredGpu], loads: Mapping[str, WorkloadSeries]) -> SharingEstimate:
    estate, bill = assessed(items)
    passing = {each.name: (0.0,) * STEPS for each in estate.nodes}
    series = {named(name): each for name, each in loads.items()}
    measured = MeasuredLoads(0.0, STEP_SECONDS, STEPS, "test", series, passing)
    promises = {each.name: LatencyPromise(100.0, "test") for each in estate.workloads}
    return estimate_sharing(estate, bill, measured, find_savings(estate, bill, measured, promises).needs, gpus)


def saved(found: SharingEstimate) -> tuple[int, int]:
    """The nodes that may go at least and at most: each costs 10 an hour."""
    return found.low_nano_per_hour // 10**10, found.high_nano_per_hour // 10**10


def test_the_busier_gpus_are_the_less_is_saved() -> None:
    items = [*nodes(5, 2), *served("ranker", TEN)]
    found = [saved(shared(items, gpus_of("ranker", active), {"ranker": evenly()})) for active in (0.02, 0.1, 0.3, 0.9)]
    assert found == sorted(found, reverse=True)
    assert found[0] == (3, 3)  # a node, and one for its loss
    assert found[-1][0] == 0


def test_memory_that_is_next_to_nothing_counts_as_what_it_is() -> None:
    gpus = [replace(each, memory_peak_gib=5e-324) for each in gpus_of("ranker", 0.1)]
    items = [*nodes(5, 2), *served("ranker", TEN)]
    assert saved(shared(items, gpus, {"ranker": evenly()})) == saved(
        shared(items, gpus_of("ranker", 0.1), {"ranker": evenly()})
    )


def test_a_tight_slo_leaves_less_than_a_loose_one() -> None:
    items, gpus = [*nodes(5, 2), *served("ranker", TEN)], gpus_of("ranker", 0.1)
    loose, tight = (shared(items, gpus, {"ranker": evenly(latency=latency)}) for latency in (10.0, 60.0))
    assert saved(loose) > saved(tight)


def test_replicas_that_must_stay_have_a_gpu_each() -> None:
    items = [*nodes(5, 2), *served("ranker", TEN), autoscaler("shop", "ranker", 6, 20)]
    assert saved(shared(items, gpus_of("ranker", 0.02), {"ranker": evenly()})) == (1, 1)  # 6 GPUs, and a node more


@pytest.mark.parametrize("metric", ["", *(names[0] for names in ACTIVITIES[1:])])
def test_without_the_activity_of_sms_the_interval_is_wide_and_says_why(metric: str) -> None:
    items, load = [*nodes(5, 2), *served("ranker", TEN)], {"ranker": evenly(200.0)}
    seen = shared(items, gpus_of("ranker", 0.1), load).kinds[0].demands[0]
    found = shared(items, gpus_of("ranker", 0.1 if metric else None, metric=metric), load).kinds[0].demands[0]
    assert found.gpus.low < seen.gpus.low <= seen.gpus.high <= found.gpus.high
    assert found.likely_gpus is None
    assert (metric or "no activity") in found.missing


def test_memory_alone_keeps_gpus_from_being_shared() -> None:
    places = {name: TEN[2 * at : 2 * at + 2] for at, name in enumerate("abcde")}
    items = [*nodes(5, 2), *(item for name in places for item in served(name, places[name]))]
    gpus = [each for name in places for each in gpus_of(name, None, places[name])]
    full = [replace(each, memory_peak_gib=44.0) for each in gpus]
    loads = {name: evenly(ready=2) for name in places}
    assert saved(shared(items, gpus, loads))[1] > saved(shared(items, full, loads))[1]


def test_a_campaign_is_worth_what_its_workload_adds_beside_others_with_profiles() -> None:
    places = {name: TEN[2 * at : 2 * at + 2] for at, name in enumerate("abcde")}
    items = [*nodes(5, 2), *(item for name in places for item in served(name, places[name]))]
    gpus = [each for name in places for each in gpus_of(name, 0.05, places[name])]
    found = shared(items, gpus, {name: evenly(ready=2) for name in places})
    estate, _ = assessed(items)
    (first, *_) = find_worths(estate, found, {named(name): name for name in places})
    assert (first.model, first.alone_nano_per_hour) == ("a", 0)  # it has nobody to share with
    assert 0 < first.nano_per_hour <= found.high_nano_per_hour
    (last,) = find_worths(estate, found, {named("a"): "a"})
    assert last.alone_nano_per_hour == last.nano_per_hour == first.nano_per_hour


def test_a_workload_without_a_load_keeps_its_gpus() -> None:
    items = [*nodes(5, 2), *served("ranker", TEN[:6]), *served("quiet", TEN[6:])]
    gpus = [*gpus_of("ranker", 0.02, TEN[:6]), *gpus_of("quiet", 0.02, TEN[6:])]
    found = shared(items, gpus, {"ranker": evenly(ready=6)})
    assert found.staying == {named("quiet"): "no load was measured"}
    assert saved(found) == (1, 1)  # of its own three nodes two stay, for one of them may be lost


def test_what_gpus_shared_today_did_is_divided_and_not_counted_twice() -> None:
    both = [gpu(place, at, 0.2, "a", "b") for at, place in enumerate(TEN)]
    items = [*nodes(5, 2), *served("a", TEN[:5]), *served("b", TEN[5:])]
    loads = {name: evenly(ready=5) for name in "ab"}
    apart = shared(items, [*gpus_of("a", 0.2, TEN[:5]), *gpus_of("b", 0.2, TEN[5:])], loads)
    together = shared(items, both, loads)
    likely = [sum(demand.likely_gpus or 0.0 for demand in each.kinds[0].demands) for each in (apart, together)]
    assert likely[0] == pytest.approx(likely[1])
