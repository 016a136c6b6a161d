"""What is believed of bursts: nothing by noise, a class where there are some, and the same for a new leader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from agents.contract.gateways import WINDOWS_A_BLOCK, GatewayCounts, ServiceCounts, WindowTotals
from app.control.domain.snapshot import Snapshot
from app.control.observe.loads.bursts import STEP, BurstBelief
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.reports import ReportBatch
from app.control.record.encoding import join_snapshot, snapshot_parts
from app.store.fleet.load_news import GatewayCounters
from solvers.latency.bursts import window_share
from tests.support.soak import scaled

SEARCH = "shop/search"


def blocks(random: np.random.Generator, count: int, mean: float, variation: float = 0.0, slos: int = 1) -> WindowTotals:
    """Totals of so many blocks of counts: Poisson, at a rate that varies from window to window."""
    excess = variation * window_share(slos)
    rates = random.gamma(1 / excess, excess, (count, WINDOWS_A_BLOCK)) if excess else np.ones((count, WINDOWS_A_BLOCK))
    counts = random.poisson(mean * rates)
    means = counts.mean(axis=1)
    return WindowTotals(
        slos, count, float(counts.var(axis=1, ddof=1).sum()), float(means.sum()), float((means**2).sum())
    )


@pytest.mark.parametrize("seed", range(scaled(100, 10)))
def test_a_steady_load_is_never_believed_to_be_bursty(seed: int) -> None:
    random, belief = np.random.default_rng(seed), BurstBelief()
    for second in range(2000):
        belief.add([blocks(random, 1, mean=float(10 ** random.uniform(-1, 2)))], second)
        assert belief.variation == 0.0


@pytest.mark.slow
def test_what_plans_exceed_a_load_by_anyway_is_no_burst() -> None:
    random, small, large = np.random.default_rng(5), BurstBelief(), BurstBelief()
    for second in range(2000):
        small.add([blocks(random, 1, mean=1000.0, variation=0.03**2)], second)
        large.add([blocks(random, 1, mean=1000.0, variation=0.07**2)], second)
        assert small.variation == 0.0
    assert large.variation > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("variation", [0.05, 0.3, 2.0])
def test_bursts_are_believed_in_one_class_that_stays(variation: float) -> None:
    random, belief = np.random.default_rng(1), BurstBelief()
    classes = []
    for second in range(6000):
        belief.add([blocks(random, 1, mean=60.0, variation=variation)], second)
        classes.append(belief.variation)
    assert variation / 1.2 < classes[-1] < variation * STEP * 1.2
    assert len(set(classes[1000:])) == 1
    assert belief.burstiness["1"] == pytest.approx(1 + 60 * variation * window_share(1), rel=0.2)


@pytest.mark.slow
def test_bursts_that_end_are_forgotten_after_a_while() -> None:
    random, belief = np.random.default_rng(2), BurstBelief()
    belief.add([blocks(random, 300, mean=60.0, variation=1.0)], 0.0)
    assert belief.variation > 0.9
    for second in range(1, 4000):
        belief.add([blocks(random, 1, mean=60.0)], second)
        assert second >= 1800 or belief.variation > 0.9
    assert belief.variation == 0.0


def test_longer_bursts_count_by_four_slos() -> None:
    random, belief = np.random.default_rng(3), BurstBelief()
    belief.add([blocks(random, 300, 50.0, 0.2), blocks(random, 300, 200.0, 1.0, slos=4)], 0.0)
    assert belief.variation == pytest.approx(1.0 * STEP**0.5, rel=0.35)


def report(sequence: int, windows: tuple[WindowTotals, ...], at: datetime) -> ReportBatch:
    counts = GatewayCounts("g1", sequence, (ServiceCounts(SEARCH, requests=100 * sequence, windows=windows),))
    return ReportBatch(at, gateways=(GatewayCounters("gateway-1", at, counts),))


def test_a_new_leader_believes_what_gateways_have_counted_before() -> None:
    random, at = np.random.default_rng(4), datetime(2026, 1, 1, tzinfo=UTC)
    counted = blocks(random, 500, mean=60.0, variation=0.5)
    leaders = [Loads(), Loads()]
    for leader in leaders:
        for second in range(3):
            now = at + timedelta(seconds=second)
            leader.take(report(second + 1, (counted,), now), now)
    expected = [leader.expect({SEARCH: 100.0}, {}, {}, at + timedelta(seconds=3), {})[SEARCH] for leader in leaders]
    assert expected[0].variation == expected[1].variation > 0.4
    assert expected[0].burstiness["1"] > 10
    snapshot = Snapshot(at, 1, expected={SEARCH: expected[0]})
    assert join_snapshot(snapshot_parts(snapshot)) == snapshot, "what was counted is recorded with the plan"
