"""A gateway that follows the control plane: real server, real HAProxy, nodes that only report.

No agent speaks to this sidecar. What nodes say and are told reaches it through the control plane, as it reaches every
gateway of a fleet beside the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, text

from agents.contract.assignments import AssignedInstance, Assignment
from agents.gateway.haproxy import parsing
from agents.gateway.sidecar import Troubles
from app.store.database.database import Database
from app.store.fleet import assignments, endpoints
from app.store.fleet.endpoints import GatewayLimit
from tests.agents.gateway.test_routes import answering
from tests.support.gateway_counts import newest_counts
from tests.support.haproxy import ANY_KEY, ANY_TABLE, Copies, Gateway, get, running_copies
from tests.support.load import steady_load
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.reports import report, send
from tests.support.server import RunningServer, running_server

EDGE = "edge-1"
SERVICE = "shop/search"
generations = count(1)
sequences = count(1)


class Fleet:
    """Nodes as the control plane knows them, and the gateway that follows it."""

    def __init__(self, server: RunningServer, gateway: Gateway, copies: Copies, token_file: Path) -> None:
        self.server = server
        self.gateway = gateway
        self.copies = copies
        self.database = Database(server.database_url, pool_size=2, direct=True)
        token_file.write_text(server.token("gateway", gateway=EDGE) + "\n")
        self.words = ["--server", server.url, "--server-token-file", str(token_file), "--name", EDGE, "--loopback"]
        self.tokens = {node: server.token("node", node=node) for node in ("node-1", "node-2")}

    def say(self, node: str, *copies: tuple[int, str]) -> None:
        """The node has these copies, each with its stage."""
        there = [
            {
                "id": f"copy-{index}",
                "instance": f"i-{index}",
                "gpu": 0,
                "stage": stage,
                "address": f"127.0.0.1:{self.copies.ports[index]}",
                "paths": ANY_KEY,
            }
            for index, stage in copies
        ]
        instances = [{"id": f"i-{index}", "gpu": 0, "tenant": "shop", "service": "search"} for index, _ in copies]
        said = report(node, next(sequences), instances=instances, copies=there, paths=ANY_TABLE)
        assert send(self.server, self.tokens[node], said).status == 200

    def tell(self, node: str, *indexes: int, rate: float = 100.0) -> None:
        """The leader says what the node shall run."""
        generation = next(generations)
        told = tuple(AssignedInstance(f"i-{index}", 0, "shop", "search", rate_per_second=rate) for index in indexes)

        def body(version: int) -> str:
            return msgspec.json.encode(Assignment(node, version, 1, generation, instances=told)).decode()

        draft = assignments.AssignmentDraft(node, generation, body)
        assert self.database.write(lambda connection: assignments.write(connection, 1, [draft]))

    def in_force(self) -> dict[str, tuple[bool, int]]:
        """Of every copy whether it takes requests, and how many it has."""
        try:
            seen = parsing.parse_servers(self.gateway.ask("show servers state")).get("gw-0001", {})
            loads = parsing.parse_loads(self.gateway.ask("show stat -1 6 -1"))
        except Troubles:
            return {}  # it starts itself again
        return {
            name.partition(":")[2]: (server.ready, load.open + load.queued)
            for name, server in seen.items()
            if (load := loads.get(("gw-0001", name)))
        }

    def ready(self) -> set[str]:
        return {copy for copy, (ready, _) in self.in_force().items() if ready}

    def drained(self, copy: str) -> bool:
        return self.in_force().get(copy) == (False, 0)


@contextmanager
def followed_fleet(postgres: DatabaseServer, folder: Path) -> Iterator[Fleet]:
    """A server with a database of its own, and a sidecar that follows it over a real HAProxy."""
    url = postgres.create()
    gateway = Gateway(folder / "gateway")
    rates = {"GPUWRIGHT_REPORT_RATE_PER_SECOND": "10000"}
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **rates) as server, running_copies(3) as copies:
        made = Fleet(server, gateway, copies, folder / "token")
        try:
            gateway.start_haproxy()
            gateway.start_sidecar(*made.words)
            gateway.await_sidecar()
            yield made
        finally:
            gateway.close()
            made.database.close()
    postgres.drop(url)


@pytest.fixture(scope="module")
def running(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with followed_fleet(postgres, tmp_path_factory.mktemp("following")) as made:
        yield made


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    """The running fleet, with a copy on each of its two nodes, whatever tests before have left behind."""
    for index, node in enumerate(running.tokens):
        running.tell(node, index)
        running.say(node, (index, "ready"))
    until(lambda: running.ready() == {"copy-0", "copy-1"}, "the gateway follows")
    return running


@pytest.mark.slow
def test_a_move_across_nodes_costs_no_request(fleet: Fleet) -> None:
    """Twice there and back: the new copy is up before the old one is drained, and it ends when it has no request."""
    fleet.tell("node-2")
    fleet.say("node-2")
    until(lambda: fleet.ready() == {"copy-0"}, "one node has none")
    with steady_load(fleet.gateway.port, f"/{SERVICE}/x", rate_per_second=200, method="POST", body="{}") as load:
        for old, new in ((0, 1), (1, 0), (0, 1), (1, 0)):
            move(fleet, old, new)
        outcome = load.stop()
    assert outcome.failed == ()
    assert len(outcome.samples) > 100


def move(fleet: Fleet, old: int, new: int) -> None:
    here, there = f"node-{old + 1}", f"node-{new + 1}"
    fleet.tell(there, new)
    fleet.say(there, (new, "warming"))
    assert fleet.ready() == {f"copy-{old}"}
    fleet.say(there, (new, "ready"))
    until(lambda: f"copy-{new}" in fleet.ready(), "the new copy gets requests")
    fleet.tell(here)  # nobody runs it there any more
    until(lambda: fleet.drained(f"copy-{old}"), "the old copy has answered its last")
    fleet.say(here, (old, "draining"))
    fleet.say(here)
    until(lambda: fleet.in_force().keys() == {f"copy-{new}"}, "the old copy is no route any more")


@pytest.mark.slow
def test_weights_follow_the_assignments_of_nodes(fleet: Fleet) -> None:
    fleet.tell("node-1", 0, rate=300.0)
    fleet.tell("node-2", 1, rate=100.0)
    until(lambda: answering(fleet.gateway, times=40)[fleet.copies.ports[0]] == 30, "three of four")


@pytest.mark.slow
def test_limits_reach_the_gateway(fleet: Fleet) -> None:
    shed = {SERVICE: GatewayLimit(shed_share=1.0, retry_after_seconds=9)}
    fleet.database.write(lambda connection: endpoints.set_limits(connection, shed))
    until(lambda: get(fleet.gateway)[::2] == (503, "9"), "it sheds")
    fleet.database.write(lambda connection: endpoints.set_limits(connection, {}))
    until(lambda: get(fleet.gateway)[0] == 200, "it does no more")


@pytest.mark.slow
def test_what_was_asked_comes_back_within_a_second_or_two(fleet: Fleet) -> None:
    def counted() -> int:
        told = newest_counts(fleet.database)
        return sum(one.requests for word in told for one in word.counts.services if one.service == SERVICE)

    assert get(fleet.gateway)[0] == 200
    until(lambda: counted() > 0, "it tells")
    before = counted()
    with steady_load(fleet.gateway.port, f"/{SERVICE}/x", rate_per_second=100) as load:
        until(lambda: counted() > before, "while it is asked")
        sent = len(load.stop().samples)
    until(lambda: counted() >= before + sent, "all of it")


@pytest.mark.slow
def test_without_the_control_plane_all_continues_also_after_a_restart(fleet: Fleet) -> None:
    def began() -> set[str]:
        return {word.counts.began for word in newest_counts(fleet.database)}

    before = began()
    fleet.server.kill()
    with steady_load(fleet.gateway.port, f"/{SERVICE}/x", rate_per_second=100) as load:
        fleet.gateway.kill_sidecar()
        fleet.gateway.start_sidecar(*fleet.words)
        fleet.gateway.await_sidecar()
        fleet.gateway.reload()
        until(lambda: fleet.ready() == {"copy-0", "copy-1"}, "what it was told stands")
        outcome = load.stop()
    assert outcome.failed == ()
    fleet.server.restart()
    fleet.tell("node-2", 1, 2)
    fleet.say("node-2", (1, "ready"), (2, "ready"))
    until(lambda: fleet.ready() == {"copy-0", "copy-1", "copy-2"}, "and it follows again")
    until(lambda: began() != before, "counting began anew, and is told")


@pytest.mark.slow
def test_a_node_that_speaks_to_this_gateway_itself_is_not_routed_twice(fleet: Fleet) -> None:
    fleet.tell("node-2", 1, 2)
    fleet.say("node-2", (1, "ready"), (2, "ready"))
    until(lambda: fleet.ready() == {"copy-0", "copy-1", "copy-2"}, "both copies of a node serve")
    own = fleet.gateway.routes("node-2")
    own.declare([fleet.copies.route(2)])
    until(lambda: fleet.ready() == {"copy-0", "copy-2"}, "what the node says counts")
    until(lambda: "_node-2:" not in fleet.gateway.ask("show servers state"), "what others said of it is deleted")
    shown = fleet.gateway.ask("show servers state")
    assert shown.count(f" {fleet.copies.ports[2]} ") == shown.count(" node-2:copy-2 ") == 1
    own.declare([])
    until(lambda: "_node-2:copy-2 " in fleet.gateway.ask("show servers state"), "the control plane's word counts again")


@pytest.mark.slow
def test_a_database_that_was_emptied_takes_no_route_away(fleet: Fleet) -> None:
    before = fleet.ready()
    assert before == {"copy-0", "copy-1"}

    def empty(connection: Connection) -> None:
        connection.execute(text("DELETE FROM node_detail"))
        connection.execute(text("SELECT advance_endpoint()"))

    fleet.database.write(empty)
    until(lambda: "reports no copy of any service" in fleet.gateway.log_path.read_text(), "it is said")
    assert fleet.ready() == before
    fleet.tell("node-1", 0)
    fleet.say("node-1", (0, "ready"))
    until(lambda: fleet.ready() == {"copy-0"}, "what a node says again counts")
