"""A node on which something serves is not deleted; drained and deleted by force it loses no request."""

from __future__ import annotations

import pytest

from tests.proofs.test_followed_agents import World, world
from tests.support.load import steady_load
from tests.support.nodes import served
from tests.support.patience import until
from tests.support.world import node

__all__ = ["world"]

PATH = "/shop/alpha/v1/models/resnet:infer"


@pytest.mark.slow
def test_deleting_a_node_is_refused_and_after_a_drain_costs_no_request(world: World) -> None:
    server = world.server
    world.tell("node-1", served("alpha-1"))
    until(lambda: bool(world.ready("node-1")), "it serves")
    with steady_load(world.gateway.port, PATH, rate_per_second=50, method="POST", body="{}") as load:
        refused = server.request("DELETE", "/api/v1/nodes/node-1")
        assert refused.status == 409
        assert [occupant["of"] for occupant in refused.json["occupants"]] == ["shop/alpha"]
        assert refused.json["cost"]["requestsPerSecond"] == 10
        world.tell("node-2", served("alpha-2"))
        until(lambda: bool(world.ready("node-2")), "another node serves")
        world.tell("node-1")
        until(lambda: world.routed() == ["node-2"], "the drained one is out of the route")
        assert server.request("DELETE", "/api/v1/nodes/node-1?force=true").status == 200
        until(lambda: world.agents["node-1"].copies() == [], "the drained copy ends by itself")
        assert server.request("PUT", "/api/v1/nodes/node-1", node("node-1", gpus=1)).status == 201
        world.agents["node-1"].join()
        world.tell("node-1", served("alpha-3"))
        until(lambda: bool(world.ready("node-1")), "declared and joined again, it serves")
        outcome = load.stop()
    assert outcome.failed == ()
    assert len(outcome.samples) > 100
