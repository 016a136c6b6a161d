"""Two agents whose gateway only follows the control plane: a move and a hand-over, and no request fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from agents.gateway.followers import SETTLED_SECONDS
from agents.host.local_socket import NotRunning, ask
from app.store.database.database import Database
from tests.proofs.test_away import stays
from tests.support.agents import AgentProcess
from tests.support.haproxy import Gateway, get
from tests.support.load import steady_load
from tests.support.nodes import assigned, kill, served
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

NODES = ("node-1", "node-2")
PATH = "/shop/alpha/v1/models/resnet:infer"


class World:
    """One control plane, two nodes, one gateway that no node speaks to."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        self.server = server
        self.database = Database(server.database_url, pool_size=1, direct=True)
        self.gateway = Gateway(folder / "gateway")
        self.agents = {node: AgentProcess(server, folder / node, 1, node) for node in NODES}
        self.token_file = folder / "token"
        self.token_file.write_text(server.token("gateway", gateway="edge-1"))
        self.generation = 0

    def start(self) -> None:
        words = ("--server", self.server.url, "--server-token-file", str(self.token_file), "--name", "edge-1")
        self.gateway.start_haproxy()
        self.gateway.start_sidecar(*words, "--loopback")
        self.gateway.await_sidecar()
        for agent in self.agents.values():
            agent.start("--gateway", "followed")

    def tell(self, node: str, *instances: AssignedInstance) -> None:
        self.generation += 1
        told = msgspec.structs.replace(assigned(self.generation, *instances), node=node)
        self.agents[node].assign(self.database, told)

    def ready(self, node: str) -> str:
        """The one copy of the node when it is ready; nothing while it has another number of them, or none is."""
        copies = self.server.request("GET", f"/api/v1/nodes/{node}/state").json.get("copies", [])
        stages = {copy["id"]: copy["stage"] for copy in copies}
        return str(next(iter(stages))) if list(stages.values()) == ["ready"] else ""

    def routed(self) -> list[str]:
        """The nodes that the gateway sends requests to."""
        services = self.server.request("GET", "/api/v1/endpoints").json["services"]
        return [copy["node"] for service in services for copy in service["copies"]]

    def close(self) -> None:
        self.gateway.close()
        for agent in self.agents.values():
            agent.close()
        self.database.close()


@pytest.fixture
def world(postgres: DatabaseServer, tmp_path: Path) -> Iterator[World]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1") as server:
        made = World(server, tmp_path)
        try:
            made.start()
            yield made
        finally:
            made.close()
    postgres.drop(url)


def stages(world: World) -> dict[str, str]:
    """The copies of node-1 and their stages, by its own agent."""
    try:
        copies = ask(world.agents["node-1"].folder, "status")["copies"]
    except (NotRunning, OSError):
        return {}
    return {copy["id"]: copy["stage"] for copy in copies}


def answers(world: World) -> bool:
    return get(world.gateway, PATH, "POST")[0] == 200


def slow(share: float) -> AssignedInstance:
    """Starts for long enough that the control plane goes away meanwhile."""
    instance = served("alpha-1", sm=share)
    return msgspec.structs.replace(instance, args={**(instance.args or {}), "startSeconds": 2.0})


def test_case_8_a_hand_over_while_the_control_plane_is_away_keeps_the_copy_that_gateways_know(world: World) -> None:
    world.tell("node-1", slow(30.0))
    until(lambda: answers(world) and list(stages(world).values()) == ["ready"], "the gateway knows the copy")
    (old,) = stages(world)
    with steady_load(world.gateway.port, PATH, rate_per_second=20, method="POST", body="{}") as load:
        world.tell("node-1", slow(60.0))
        until(lambda: len(stages(world)) == 2, "another copy starts")
        world.server.kill()
        until(lambda: set(stages(world).values()) == {"ready", "routing"}, "it is warm, but no gateway knows it")
        stays(lambda: stages(world).get(old) == "ready" and len(stages(world)) == 2, scaled(60, 6))
        with world.gateway.paused_sidecar():  # it is the last to notice that the control plane is back
            world.server.restart()
            until(lambda: len(world.routed()) == 2, "the control plane knows both copies")
            stays(lambda: stages(world).get(old) == "ready" and len(stages(world)) == 2, 2 * SETTLED_SECONDS)
        until(lambda: old not in stages(world) and list(stages(world).values()) == ["ready"], "it takes over")
        outcome = load.stop()
    assert outcome.failed == ()


def test_case_8_a_copy_that_dies_while_the_control_plane_is_away_comes_back_where_gateways_know_it(
    world: World,
) -> None:
    world.tell("node-1", served("alpha-1"))
    until(lambda: answers(world) and list(stages(world).values()) == ["ready"], "the gateway knows the copy")
    world.server.kill()
    (running,) = world.agents["node-1"].runtime.find()
    kill(running.pid)
    until(lambda: running.copy not in stages(world) and len(stages(world)) == 1, "another copy is started")
    until(lambda: answers(world), "the gateway reaches it, although nobody has heard of it")
    world.server.restart()
    until(lambda: list(stages(world).values()) == ["ready"], "it is in force")
    assert answers(world)


def test_a_copy_serves_while_a_gateway_reports_and_has_not_taken_its_end_and_an_event_names_the_gateway(
    world: World,
) -> None:
    world.tell("node-1", served("alpha-1"))
    until(lambda: list(stages(world).values()) == ["ready"], "it serves")
    edge = SlowGateway(world)
    world.tell("node-1")
    until(lambda: edge.report() and set(stages(world).values()) == {"draining"}, "it is to leave")
    until(lambda: edge.report() and edge.events(), "it is said which gateway keeps it", seconds=90)
    stays(lambda: edge.report() and set(stages(world).values()) == {"draining"}, scaled(120, 10))
    assert edge.events()[0]["name"] == "edge-2"
    assert "gateway edge-2 has not taken version" in edge.events()[0]["message"]
    (held,) = world.server.request("GET", "/api/v1/nodes/node-1/state").json["heldBack"]
    assert (held["instance"], held["reason"]) == ("alpha-1", "gateway_behind")
    assert answers(world) is False, "the gateway that has taken it sends nothing"
    edge.take()
    until(lambda: edge.report() and not stages(world), "it ends once the last gateway has it")


class SlowGateway:
    """A second gateway that reports every second, and puts endpoints in force when the test says so."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._token = world.server.token("gateway", gateway="edge-2")
        self._sequence, self._reported_at = 0, 0.0
        self.take()

    def take(self) -> None:
        self._version = int(self._world.server.request("GET", "/api/v1/endpoints").json["version"])

    def report(self) -> bool:
        if time.monotonic() - self._reported_at >= 1.0:
            self._sequence, self._reported_at = self._sequence + 1, time.monotonic()
            counts = {"began": "now", "sequence": self._sequence, "services": [], "endpoints": self._version}
            path = "/api/v1/gateways/edge-2/counts"
            assert self._world.server.request("PUT", path, counts, token=self._token).status == 200
        return True

    def events(self) -> list[dict[str, str]]:
        found = self._world.server.request("GET", "/api/v1/events?reason=gateway_behind").json["items"]
        return [dict(event) for event in found]


def test_a_move_and_a_hand_over_cost_no_request(world: World) -> None:
    world.tell("node-1", served("alpha-1"))
    until(lambda: bool(world.ready("node-1")), "it serves")
    with steady_load(world.gateway.port, PATH, rate_per_second=50, method="POST", body="{}") as load:
        world.tell("node-2", served("alpha-2"))
        until(lambda: bool(world.ready("node-2")), "the new instance is ready")
        world.tell("node-1")
        until(lambda: world.routed() == ["node-2"], "the old one has gone")
        before = world.ready("node-2")
        world.tell("node-2", served("alpha-2", sm=60.0))
        until(lambda: world.ready("node-2") not in ("", before), "another copy serves in its place")
        outcome = load.stop()
    assert outcome.failed == ()
    assert len(outcome.samples) > 100
