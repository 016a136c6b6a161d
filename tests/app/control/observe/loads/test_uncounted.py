"""Where a gateway cannot count, what the others count is not taken for all that is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agents.contract.gateways import GatewayCounts, ServiceCounts
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.reports import ReportBatch
from app.control.observe.loads.window import GATEWAY, NODE
from app.store.fleet.load_news import GatewayCounters

SEARCH = "shop/search"
START = datetime(2026, 1, 1, tzinfo=UTC)


def taken(*gateways: tuple[str, bool, int]) -> Loads:
    """Returns loads after each of these gateways has reported twice, five seconds apart."""
    loads = Loads()
    for second in (0, 5):
        now = START + timedelta(seconds=second)
        counters = []
        for name, uncounted, rate in gateways:
            services = () if uncounted else (ServiceCounts(SEARCH, requests=rate * (second + 1)),)
            counters.append(GatewayCounters(name, now, GatewayCounts("g", second + 1, services, uncounted=uncounted)))
        loads.take(ReportBatch(now, gateways=counters), now)
    return loads


def test_copies_own_counts_are_the_demand_where_only_a_gateway_reports_that_cannot_count() -> None:
    window = taken(("cluster", True, 0))._window(SEARCH)
    assert not window.is_reported, "silence is no demand of zero"
    window.rates[NODE]["node-1"] = 40.0
    assert (window.source, window.rate) == (NODE, 40.0)


def test_beside_such_a_gateway_the_larger_count_is_the_demand() -> None:
    for rate, source, demand in ((0, NODE, 40.0), (30, NODE, 40.0), (90, GATEWAY, 90.0)):
        window = taken(("edge", False, rate), ("cluster", True, 0))._window(SEARCH)
        window.rates[NODE]["node-1"] = 40.0
        assert (window.source, window.rate) == (source, demand)


def test_its_routes_stay_where_it_falls_silent_and_without_one_gateways_count_all() -> None:
    loads = taken(("edge", False, 30), ("cluster", True, 0))
    loads.take(ReportBatch(START + timedelta(seconds=8)), START + timedelta(hours=1))
    assert loads._window(SEARCH).is_partly_counted
    window = taken(("edge", False, 30))._window(SEARCH)
    window.rates[NODE]["node-1"] = 40.0
    assert (window.source, window.rate) == (GATEWAY, 30.0)
