"""What a gateway of a cluster writes, what it leaves alone, and what a real Envoy makes of it."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from agents.gateway.cluster.objects import OWNER, ParentGateway
from agents.gateway.cluster.reading import misses_endpoints
from tests.kubernetes.gateways.conftest import Gateways
from tests.kubernetes.gateways.envoy_gateway import HOME
from tests.kubernetes.gateways.site import GATEWAY, NAME, RoutedSite
from tests.support.patience import until

pytestmark = pytest.mark.slow

QUICK = "--settle-seconds=0.2"
PARENT = ParentGateway(HOME, GATEWAY)


def make_route(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": {}}


def test_requests_reach_copies_by_path_and_weight(site: RoutedSite) -> None:
    site.start(QUICK)
    site.put(search=[site.copy(0, 300.0), site.copy(1, 100.0), site.copy(2, 100.0)], empty=[])
    assert sorted(site.read_weights()) == [200_000, 300_000]
    status, body = site.get("/shop/search/v1/models?x=1")
    assert (status, body.split()[1]) == (200, "/v1/models?x=1")
    assert site.get("/shop/empty/x")[0] == 503, "a service without copies"
    says = {name: misses_endpoints(site.read_route(name), PARENT) for name in ("search", "empty")}
    assert says == {"search": False, "empty": True}, "this Gateway tells it"
    assert site.get("/shop/unknown/x")[0] == 404
    newest = site.plane.newest
    assert (newest.uncounted, newest.services, newest.left_out) == (True, (), ())


def test_a_foreign_object_with_a_name_of_ours_is_left_alone_and_named(site: RoutedSite) -> None:
    name = f"{NAME}.shop.search"
    site.cluster.kubectl("-n", site.namespace, "create", "-f", "-", given=make_route(name, **{OWNER: "edge-2"}))
    site.start(QUICK)
    site.put(search=[site.copy(0, 1.0)], other=[site.copy(1, 1.0)])
    assert site.get("/shop/other/x")[0] == 200, "others are routed"
    assert site.get()[0] == 404
    until(lambda: site.plane.newest.left_out, "the control plane hears of it")
    (left_out,) = site.plane.newest.left_out
    assert (left_out.node, left_out.copy) == ("node-1", "c0")
    assert left_out.reason == f"HTTPRoute {site.namespace}/{name} is not of gateway {NAME}, which leaves it alone"
    found = site.cluster.read("-n", site.namespace, "get", "httproute", name)
    assert (found["metadata"]["labels"], found["metadata"]["generation"]) == ({OWNER: "edge-2"}, 1)
    site.cluster.kubectl("-n", site.namespace, "delete", "httproute", name)
    until(lambda: site.get()[0] == 200, "its name is free")
    until(lambda: not site.plane.newest.left_out, "and the control plane hears of that")


def test_a_gateway_that_cannot_be_asked_gets_the_settling_time_alone(site: RoutedSite) -> None:
    site.cluster.kubectl("-n", site.namespace, "create", "-f", "-", given=make_route(f"{NAME}.echo"))
    site.start(QUICK)
    site.put(search=[site.copy(0, 1.0)])
    said = f"HTTPRoute {site.namespace}/{NAME}.echo is not of gateway {NAME}, which leaves it alone"
    assert f"is not asked what it has read, and only the settling time is waited: {said}" in site.log.read_text()
    site.put(search=[site.copy(1, 1.0)])
    assert str(site.copies.ports[1]) in site.get()[1]
    assert site.plane.newest.left_out == ()
    assert len(site.list_objects()) == 3
    until(lambda: len(site.list_objects(echoes=True)) == 0, "nothing is left of the attempts")
    site.cluster.kubectl("-n", site.namespace, "delete", "httproute", f"{NAME}.echo")
    site.put(search=[site.copy(0, 1.0)])
    assert site.read_echo()


def test_what_is_gone_leaves_nothing_and_nothing_else_is_deleted(site: RoutedSite) -> None:
    site.cluster.kubectl("-n", site.namespace, "create", "-f", "-", given=make_route("theirs"))
    site.cluster.kubectl("-n", site.namespace, "create", "service", "clusterip", "theirs", "--tcp=80")
    site.start(QUICK)
    site.put(search=[site.copy(0, 5.0), site.copy(1, 6.0)], other=[site.copy(2, 1.0)])
    before = {each["metadata"]["name"] for each in site.list_objects()}
    assert len(before) == 2 + 3 + 3
    site.put(other=[site.copy(2, 1.0)])
    until(lambda: len(site.list_objects()) == 3, "all of search is gone")
    assert site.get("/shop/other/x")[0] == 200
    until(lambda: site.get()[0] == 404, "Envoy has it")
    assert len(site.list_objects("httproutes,services", f"!{OWNER}")) == 2


def test_objects_stay_while_nobody_follows_and_a_change_by_others_is_put_right(site: RoutedSite) -> None:
    first = site.start(QUICK)
    site.put(search=[site.copy(0, 5.0), site.copy(1, 5.0)])
    before = {each["metadata"]["uid"] for each in site.list_objects()}
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 0
    site.plane.endpoints = None  # a control plane that says nothing
    second = site.start(QUICK)
    until(lambda: site.log.read_text().count("until stopped") == 2, "it runs")
    route = f"httproute/{NAME}.shop.search"
    change = '[{"op": "replace", "path": "/spec/rules/0/backendRefs/0/weight", "value": 7}]'
    site.cluster.kubectl("-n", site.namespace, "patch", route, "--type=json", "-p", change)
    assert site.read_weights() == [7], "it touches nothing before it knows what is wanted"
    site.server.forget_history()
    site.put(search=[site.copy(0, 5.0), site.copy(1, 5.0)])
    assert site.read_weights() == [10_000]
    assert {each["metadata"]["uid"] for each in site.list_objects()} == before
    site.cluster.kubectl("-n", site.namespace, "patch", route, "--type=json", "-p", change)
    until(lambda: site.read_weights() == [10_000], "it is put right")
    site.cluster.kubectl("-n", site.namespace, "delete", "endpointslices", "-l", OWNER)
    until(lambda: len(site.list_objects("endpointslices")) == 2, "and made again")
    assert second.poll() is None


def test_of_two_processes_with_one_name_one_writes_and_the_other_waits(site: RoutedSite) -> None:
    first = site.start(QUICK)
    site.put(search=[site.copy(0, 5.0)])
    site.start(QUICK)
    until(lambda: "another process is gateway edge-1" in site.log.read_text(), "the second waits")
    assert site.log.read_text().count("until stopped") == 1
    first.send_signal(signal.SIGTERM)
    first.wait()
    site.put(search=[site.copy(1, 5.0)])
    assert site.log.read_text().count("until stopped") == 2
    assert str(site.copies.ports[1]) in site.get()[1]


def test_a_route_that_the_gateway_does_not_accept_is_named_and_stops_no_other(site: RoutedSite) -> None:
    site.start(QUICK, "--parent", "envoy-gateway-system/public/nowhere")
    site.say(search=[site.copy(0, 5.0)])
    until(lambda: site.plane.newest.left_out, "the control plane hears of it")
    assert "the Gateway does not accept HTTPRoute" in site.plane.newest.left_out[0].reason


def test_a_copy_stays_until_a_gateway_that_stood_still_knows_the_other(site: RoutedSite, gateways: Gateways) -> None:
    site.start(QUICK)
    first, second, third = (site.copy(index, 5.0) for index in range(3))
    site.put(search=[first, second])
    before, reports = site.read_echo(), len(site.plane.counts)
    with gateways[2].paused():
        version = site.say(search=[second, third])
        until(lambda: site.read_echo() not in ("", before), "the Gateway is asked")
        until(lambda: len(site.plane.counts) > reports + 3, "it still reports")
        assert site.read_weights() == [10_000], "no route has changed"
        assert site.plane.newest.endpoints < version, "and the slices have not been read"
        assert len(site.list_objects("endpointslices")) == 3
        ports = {site.get()[1] for _ in range(40)}
        assert any(str(site.copies.ports[0]) in body for body in ports), "the copy that leaves still gets requests"
    site.await_version(version)
    assert len(site.list_objects("endpointslices")) == 2
