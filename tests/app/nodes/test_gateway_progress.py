"""Hand-overs wait for gateways that may still need a copy, also after an outage, and for no gateway that is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.contract.gateways import Endpoints
from app.nodes.endpoint_polls import EndpointSnapshot
from app.nodes.gateway_progress import AwaitedGateway, AwaitedGateways, RoutedVersion, find_routed
from app.store.fleet.gateways import InForce

START = datetime(2026, 1, 1, tzinfo=UTC)
GONE = InForce("gone", START, 3)
HEALTHY = AwaitedGateway("healthy", 7, reports=True)


def healthy(seconds: float) -> InForce:
    return InForce("healthy", START + timedelta(seconds=seconds), 7)


@pytest.mark.parametrize("flap_seconds", [1_000_000, 30, 5])
def test_a_gateway_that_is_gone_is_given_up_although_the_database_fails_again_and_again(flap_seconds: int) -> None:
    awaited = AwaitedGateways()
    for second in range(300):
        if second % flap_seconds < max(1, flap_seconds // 2):  # else the read fails
            versions = [gateway.endpoints for gateway in awaited.read([healthy(second), GONE], float(second))]
            assert second > 60 or versions == [7, 3]
            assert 7 in versions
    assert versions == [7]


@pytest.mark.parametrize("outage_seconds", [65.0, 600.0, 3 * 86_400.0])
def test_a_healthy_gateway_is_awaited_after_an_outage_that_no_read_met(outage_seconds: float) -> None:
    awaited = AwaitedGateways()
    for second in range(100):
        assert awaited.read([healthy(second)], float(second)) == [HEALTHY]
    back = 100 + outage_seconds
    for second in range(5):
        assert awaited.read([healthy(99)], back + second) == [HEALTHY], "it has had no time to report yet"
    changed = EndpointSnapshot(9, Endpoints(9), older=7)
    assert find_routed(awaited.read([healthy(99)], back + 5), changed, 9) == RoutedVersion(7, "healthy")
    assert awaited.read([healthy(back)], back + 6) == [HEALTHY]


def test_a_gateway_that_reports_again_is_awaited_again() -> None:
    awaited = AwaitedGateways()
    for second in range(70):
        found = awaited.read([GONE], float(second))
        assert found == ([AwaitedGateway("gone", 3, second <= 10)] if second <= 60 else []), "silence is not behind"
    assert awaited.read([InForce("gone", START + timedelta(seconds=70), 3)], 70.0) == [
        AwaitedGateway("gone", 3, reports=True)
    ]


@pytest.mark.parametrize(
    ("awaited", "routed"),
    [
        ({"silent": 3, "edge": 9}, RoutedVersion(3)),
        ({"silent": 3, "edge": 7}, RoutedVersion(3, "edge")),
        ({"silent": 3, "edge": 6, "far": 4}, RoutedVersion(3, "far")),
        ({"silent": 3, "edge": 8}, RoutedVersion(3, is_known=False)),
        ({"edge": 9}, RoutedVersion(12)),
        ({"silent": 3}, RoutedVersion(3)),
    ],
)
def test_a_silent_gateway_hides_none_that_reports_and_is_behind(
    awaited: dict[str, int], routed: RoutedVersion
) -> None:  # fmt: skip
    known = EndpointSnapshot(12, Endpoints(9), older=7)
    found = [AwaitedGateway(name, version, reports=name != "silent") for name, version in awaited.items()]
    assert find_routed(found, known, 12) == routed


def test_a_server_whose_reads_stand_still_does_not_say_that_no_gateway_is_behind() -> None:
    known = EndpointSnapshot(12, Endpoints(9), older=7)
    edge = AwaitedGateway("edge", 9, reports=True)
    assert find_routed([edge], known, 13) == RoutedVersion(12, is_known=False)
    assert find_routed([replace(edge, endpoints=7)], known, 13) == RoutedVersion(7, "edge"), "this much it has seen"


def test_a_server_that_has_just_started_does_not_know_whether_older_endpoints_are_others() -> None:
    edge = [AwaitedGateway("edge", 6, reports=True)]
    assert find_routed(edge, EndpointSnapshot(), 0) == RoutedVersion(0, is_known=False)
    assert find_routed(edge, EndpointSnapshot(9, Endpoints(9)), 9) == RoutedVersion(6, is_known=False)
