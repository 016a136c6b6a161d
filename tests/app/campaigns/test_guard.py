"""A campaign gives way to what serves: it is refused, or stops, where the SLO of a service on its node suffers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from app.store.database.database import Database
from app.store.fleet import assignments, loads
from app.store.fleet.loads import LoadBucket
from simulation.run import Simulation
from tests.app.campaigns.running import ask, asked, declare_model
from tests.app.campaigns.test_requests import told
from tests.support.nodes import assigned, served
from tests.support.planned import planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer
from tests.support.world import gpu_type, model, node, service


@pytest.fixture
def database(api: RunningServer) -> Iterator[Database]:
    opened = Database(api.database_url, pool_size=2)
    yield opened
    opened.close()


@pytest.fixture
def serving(api: RunningServer, database: Database) -> RunningServer:
    """A node with shop/search on GPU 0, under an SLO of 98 %."""
    world = [gpu_type(), node("node-1"), model("resnet50"), service("search", "shop")]
    assert api.request("POST", "/api/v1/apply", world).status == 200
    declare_model(api)
    assign(database, served("search-1", gpu=0))
    return api


def assign(database: Database, *instances: AssignedInstance) -> None:
    assignment = assigned(1, *instances)
    draft = assignments.AssignmentDraft(
        "node-1", 1, lambda version: msgspec.json.encode(msgspec.structs.replace(assignment, version=version)).decode()
    )
    database.write(lambda connection: assignments.write(connection, 1, [draft]))


def answered(database: Database, late: float, requests: float = 1000.0, service: str = "search") -> None:
    """Requests in the last seconds, of which some were late."""
    at = datetime.now(UTC) + timedelta(seconds=1)
    bucket = LoadBucket("shop", service, at, 10.0, requests, 0, late, (), answers=requests)
    database.write(lambda connection: loads.keep(connection, [bucket]))


def test_a_campaign_is_not_begun_beside_a_service_that_misses_its_slo(
    serving: RunningServer, database: Database
) -> None:
    answered(database, late=30)
    refused = ask(serving, gpu=1)
    assert refused.status == 409
    assert "shop/search answered 97 % of its requests in time" in refused.json["detail"]
    assert serving.request("GET", "/api/v1/cordons").json["items"] == []


def test_a_campaign_stops_when_a_service_on_its_node_suffers(serving: RunningServer, database: Database) -> None:
    campaign = asked(serving, gpu=1)
    assert told(serving, {"campaign": campaign.id})["task"]
    answered(database, late=10)
    assert told(serving, {"campaign": campaign.id})["task"], "98 % are in time"
    answered(database, late=100)
    assert told(serving, {"campaign": campaign.id}) == {"isOver": True}
    ended = campaign.read()
    assert (ended["state"], ended["reason"]) == ("stopped", "slo_suffers")
    assert "shop/search" in ended["message"]
    events = serving.request("GET", "/api/v1/events?reason=campaign_ended").json["items"]
    assert [event["name"] for event in events] == ["node-1"]


def test_few_requests_and_other_services_stop_no_campaign(serving: RunningServer, database: Database) -> None:
    campaign = asked(serving, gpu=1)
    answered(database, late=10, requests=10)
    answered(database, late=500, service="elsewhere")
    assert told(serving, {"campaign": campaign.id})["task"]


def on_gpu(simulation: Simulation, node_name: str, gpu: int) -> list[str]:
    stored = simulation.database.read(lambda connection: assignments.of_node(connection, node_name))
    assert stored is not None
    return [line["service"] for line in msgspec.json.decode(stored[1]).get("instances", []) if line["gpu"] == gpu]


def test_plans_leave_the_gpu_of_a_campaign_empty_and_serve_all_that_they_did(postgres: DatabaseServer) -> None:
    with planned_fleet(postgres) as fleet:
        server, simulation = fleet.server, fleet.simulation
        declare_model(server)
        assert server.request("DELETE", "/api/v1/services/lab/x").status == 200, "more than the fleet can serve"
        simulation.advance(60)
        busy = next((name, gpu) for name in ("node-0", "node-1") for gpu in range(4) if on_gpu(simulation, name, gpu))
        before = unserved(server)
        campaign = asked(server, node=busy[0], gpu=busy[1])
        simulation.advance(120)
        assert on_gpu(simulation, *busy) == []
        assert unserved(server) == before
        server.request("DELETE", f"/api/v1/campaigns/{campaign.id}")
        assert server.request("GET", "/api/v1/cordons").json["items"] == []


def unserved(server: RunningServer) -> set[str]:
    """The services that are not fully served."""
    items = server.request("GET", "/api/v1/services").json["items"]
    return {
        item["metadata"]["name"]
        for item in items
        for condition in item["status"].get("conditions", ())
        if (condition["type"], condition["status"]) == ("Served", "False")
    }
