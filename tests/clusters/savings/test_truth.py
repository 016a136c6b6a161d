"""What L0 leaves keeps every SLO that was kept, in a simulated truth, also when a node is lost."""

from __future__ import annotations

from random import Random

import pytest

from clusters.estate import WorkloadName
from clusters.measured import LatencyPromise, MeasuredLoads, WorkloadSeries
from clusters.savings import find_savings
from tests.clusters.savings.fleets import STEP_SECONDS, STEPS, assessed, named, nodes, served
from tests.clusters.savings.truth import TrueService, draw_service, quantile, serve
from tests.support.soak import scaled

GPUS_PER_NODE = 4
PERCENTILE = 99


def keeps(truth: TrueService, replicas: int, seed: int) -> bool:
    """Whether so many replicas keep the SLO over the day."""
    found = [latency for step in serve(truth, [replicas] * STEPS, Random(seed)) for latency in step]
    return quantile(found, PERCENTILE) <= truth.slo_ms


def kept(truth: TrueService, ready: tuple[int, ...], seed: int) -> tuple[bool, WorkloadSeries]:
    """Whether the SLO was kept on the day that was measured, and what was measured."""
    by_step = serve(truth, ready, Random(seed))
    latencies = tuple(quantile(step, PERCENTILE) if step else None for step in by_step)
    series = WorkloadSeries(truth.rates, tuple(map(float, ready)), latencies)
    return quantile([latency for step in by_step for latency in step], PERCENTILE) <= truth.slo_ms, series


@pytest.mark.slow
def test_every_slo_that_was_kept_stays_kept_by_what_l0_leaves() -> None:
    reduced = lost = freed = 0
    for seed in range(scaled(120, 14)):
        random = Random(seed)
        count = random.randrange(3, 7)
        names = ["search", "ranker", "speech"]
        truths: dict[WorkloadName, TrueService] = {}
        items, days, was_kept = nodes(count, GPUS_PER_NODE), {}, {}
        free = [f"n{at}" for at in range(count) for _ in range(GPUS_PER_NODE)]
        random.shuffle(free)
        for name in names:
            replicas = random.randrange(2, max(3, len(free) // 2))
            places, free = free[:replicas], free[replicas:]
            items += served(name, places)
            truth = truths[named(name)] = draw_service(random, replicas)
            was_kept[named(name)], days[named(name)] = kept(truth, truth.ready, seed + 1000)
        estate, bill = assessed(items)
        promises = {name: LatencyPromise(truth.slo_ms, "truth", PERCENTILE) for name, truth in truths.items()}
        passing = {each.name: (0.0,) * STEPS for each in estate.nodes}
        measured = MeasuredLoads(0.0, STEP_SECONDS, STEPS, "truth", days, passing)
        savings = find_savings(estate, bill, measured, promises)
        freed += len(savings.nodes)
        for each in savings.workloads:
            truth, today = truths[each.workload], [pod.node for pod in estate.pods_of(each.workload)]
            if each.needed == each.now or not was_kept[each.workload]:
                continue
            reduced += 1
            assert keeps(truth, each.needed, seed + 2000), f"{each} of draw {seed}"
            assert each.survivors is not None
            left_today = each.now - max(today.count(place) for place in today)
            if left_today and keeps(truth, left_today, seed + 3000):
                lost += 1
                assert keeps(truth, each.survivors, seed + 3000), f"{each} of draw {seed}, a node lost"
    assert reduced >= scaled(40, 5)
    assert lost >= scaled(20, 2)
    assert freed >= scaled(20, 2)
