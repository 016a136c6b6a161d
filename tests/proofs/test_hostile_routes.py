"""A node whose token was stolen reports copies: no other tenant's requests are stopped or diverted.

Real server, real HAProxy and its sidecar; the node only reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.gateway.test_routes import answering
from tests.proofs.test_following import Fleet, followed_fleet, sequences
from tests.support.haproxy import get
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.reports import report, send

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(postgres: DatabaseServer, tmp_path: Path) -> Iterator[Fleet]:
    with followed_fleet(postgres, tmp_path) as made:
        yield made


def claim(fleet: Fleet, node: str, service: str, *addresses: str, instance: str = "i-9") -> None:
    """The thief reports ready copies at these addresses."""
    copies = [
        {"id": f"stolen-{number}", "instance": instance, "gpu": 0, "stage": "ready", "address": address}
        for number, address in enumerate(addresses)
    ]
    tenant, _, name = service.partition("/")
    instances = [{"id": instance, "gpu": 0, "tenant": tenant, "service": name}]
    sent = report(node, next(sequences), instances=instances, copies=copies)
    assert send(fleet.server, fleet.tokens[node], sent).status == 200


def events(fleet: Fleet) -> list[str]:
    found = fleet.server.request("GET", "/api/v1/events?reason=copy_not_routed").json["items"]
    return [event["message"] for event in found]


@pytest.mark.parametrize("address", ["[2001:db8::1%;x]:80", "[2001:db8::1%x]:80"])
def test_case_23_one_reported_address_stops_no_gateway(fleet: Fleet, address: str) -> None:
    fleet.tell("node-1", 0)
    fleet.tell("node-2", 9)
    fleet.say("node-1", (0, "ready"))
    until(lambda: fleet.ready() == {"copy-0"}, "the gateway follows")
    claim(fleet, "node-2", "shop/search", address)
    until(lambda: any(address in message for message in events(fleet)), "an operator reads which node and address")
    fleet.tell("node-1", 0, 1)
    fleet.say("node-1", (0, "ready"), (1, "ready"))
    until(lambda: fleet.ready() == {"copy-0", "copy-1"}, "new copies still take effect")
    fleet.gateway.kill_sidecar()
    fleet.gateway.start_sidecar(*fleet.words)
    fleet.gateway.await_sidecar()
    assert fleet.gateway.haproxy
    fleet.gateway.haproxy.kill()
    fleet.gateway.haproxy.wait()
    fleet.gateway.start_haproxy()
    until(lambda: get(fleet.gateway)[0] == 200, "HAProxy starts with what the sidecar has written")
    fleet.say("node-1", (1, "ready"))
    until(lambda: fleet.ready() == {"copy-1"}, "and drains take effect")


def test_case_25_a_copy_that_was_never_assigned_takes_no_request_of_another_tenant(fleet: Fleet) -> None:
    thief = f"127.0.0.1:{fleet.copies.ports[2]}"
    claim(fleet, "node-2", "shop/search", thief)
    until(lambda: any("not assigned to this node" in message for message in events(fleet)), "an operator reads it")
    assert fleet.server.request("GET", "/api/v1/endpoints").json["services"] == []
    fleet.tell("node-1", 0)
    fleet.say("node-1", (0, "ready"))
    until(lambda: fleet.ready() == {"copy-0"}, "the true copy is routed")
    claim(fleet, "node-2", "shop/search", thief, instance="i-0")  # assigned, but to another node
    fleet.tell("node-1", 0, 1)
    fleet.say("node-1", (0, "ready"), (1, "ready"))
    until(lambda: fleet.ready() == {"copy-0", "copy-1"}, "the gateway has what was reported since")
    fleet.say("node-1", (0, "ready"))
    until(lambda: fleet.ready() == {"copy-0"}, "the thief has no part in it")
    assert answering(fleet.gateway).keys() == {fleet.copies.ports[0]}
