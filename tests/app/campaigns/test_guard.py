"""A campaign gives way to what serves: it is refused, or stops, where the SLO of a service on its node suffers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from sqlalchemy import text

from agents.contract.assignments import AssignedInstance
from app.store.database.database import Database
from app.store.fleet import assignments, loads
from app.store.fleet.loads import LoadBucket
from simulation.run import Simulation, open_simulation
from simulation.world import read_documents
from tests.app.campaigns.running import ask, asked, declare_model
from tests.app.campaigns.test_requests import measured, told
from tests.simulation import worlds
from tests.support.nodes import assigned, served
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type, model, node, service

pytestmark = pytest.mark.slow


@pytest.fixture
def serving(api: RunningServer, database: Database) -> RunningServer:
    """A node with shop/search on GPU 0, under an SLO of 98 %."""
    world = [gpu_type(), node("node-1"), model("resnet50"), service("search", "shop")]
    assert api.request("POST", "/api/v1/apply", world).status == 200
    declare_model(api)
    assign(database, served("search-1", gpu=0))
    return api


def assign(database: Database, *instances: AssignedInstance, generation: int = 1) -> None:
    assignment = assigned(generation, *instances)
    draft = assignments.AssignmentDraft(
        "node-1",
        generation,
        lambda version: msgspec.json.encode(msgspec.structs.replace(assignment, version=version)).decode(),
    )
    database.write(lambda connection: assignments.write(connection, 1, [draft]))


def answered(
    database: Database, late: float, requests: float = 1000.0, service: str = "search", errors: int = 0
) -> None:
    """Requests in the last seconds, of which some were late, and others failed."""
    at = datetime.now(UTC) + timedelta(seconds=1)
    bucket = LoadBucket("shop", service, at, 10.0, requests + errors, errors, late, (), answers=requests)
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


def test_a_campaign_stops_when_a_language_model_on_its_node_suffers(serving: RunningServer, database: Database) -> None:
    slo = '{"ttftMs": 800, "tpotMs": 40, "percentile": 98}'
    change = text("UPDATE object SET spec = jsonb_set(spec, '{slo}', CAST(:slo AS jsonb)) WHERE name = 'search'")
    database.write(lambda connection: connection.execute(change, {"slo": slo}))
    campaign = asked(serving, gpu=1)
    answered(database, late=100)
    assert told(serving, {"campaign": campaign.id}) == {"isOver": True}
    assert "98 % in 800 ms to the first token and 40 ms for each further one" in campaign.read()["message"]


def test_few_requests_and_other_services_stop_no_campaign(serving: RunningServer, database: Database) -> None:
    campaign = asked(serving, gpu=1)
    answered(database, late=10, requests=10)
    answered(database, late=500, service="elsewhere")
    assert told(serving, {"campaign": campaign.id})["task"]


def test_a_service_that_never_ran_stops_no_campaign_and_is_named_when_it_is_done(
    serving: RunningServer, database: Database
) -> None:
    world = [service("new", "shop"), service("broken", "shop")]
    assert serving.request("POST", "/api/v1/apply", world).status == 200
    assign(database, served("search-1", gpu=0), served("broken-1", gpu=0, service="broken"), generation=2)
    answered(database, late=0, requests=0, errors=500, service="broken")
    campaign = asked(serving, gpu=1, batches=[1], smPercents=[100])
    leave_unserved(database, "new", "the plan carries 0 of 5 requests a second: no Profile of resnet50")
    task = told(serving, {"campaign": campaign.id})["task"]
    report = {"campaign": campaign.id, "measured": measured(setting=task["setting"])}
    assert told(serving, report) == {"isOver": True}
    ended = campaign.read()
    assert (ended["state"], ended["reason"]) == ("done", None)
    assert ended["message"] == (
        "passed over, as they never ran: shop/broken: no request to it was ever answered; "
        "shop/new: the plan carries 0 of 5 requests a second: no Profile of resnet50"
    )


def test_a_service_that_has_run_stops_a_campaign_once_plans_leave_it_unserved(
    serving: RunningServer, database: Database
) -> None:
    campaign = asked(serving, gpu=1)
    leave_unserved(database, "search", "the plan carries 0 of 5 requests a second")
    assert told(serving, {"campaign": campaign.id}) == {"isOver": True}
    assert campaign.read()["message"] == "shop/search is not fully served any more"


def leave_unserved(database: Database, name: str, message: str) -> None:
    """Writes what a planner says of a service that no plan has served for an hour."""
    at = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    condition = {"type": "Planned", "status": "False", "message": message, "lastTransitionTime": at}
    change = text("UPDATE object SET status = CAST(:status AS jsonb) WHERE kind = 'Service' AND name = :name")
    status = msgspec.json.encode({"conditions": [condition]}).decode()
    database.write(lambda connection: connection.execute(change, {"status": status, "name": name}))


def on_gpu(simulation: Simulation, node_name: str, gpu: int) -> list[str]:
    stored = simulation.database.read(lambda connection: assignments.read_assignment(connection, node_name))
    assert stored is not None
    return [line["service"] for line in msgspec.json.decode(stored[1]).get("instances", []) if line["gpu"] == gpu]


def test_plans_leave_the_gpu_of_a_campaign_empty_and_serve_all_that_they_did(postgres: DatabaseServer) -> None:
    url = postgres.create()
    names = {"a": 50.0, "b": 40.0}
    services = [worlds.service(name, rate) for name, rate in names.items()]
    known = [document for name in names for document in (worlds.model(name), worlds.profile(name))]
    world = read_documents([worlds.gpu_type(), worlds.policy(mode="auto"), worlds.node("node-0"), *known, *services])
    with open_simulation(url, world) as simulation:
        simulation.advance(240, worlds.CALM_TICK_SECONDS)
        postgres.stands_at(url, simulation.clock.now())
        with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1") as server:
            declare_model(server)
            busy = next(gpu for gpu in range(4) if on_gpu(simulation, "node-0", gpu))
            campaign = asked(server, node="node-0", gpu=busy)
            simulation.advance(120, worlds.CALM_TICK_SECONDS)
            assert on_gpu(simulation, "node-0", busy) == []
            assert unserved(server) == set()
            server.request("DELETE", f"/api/v1/campaigns/{campaign.id}")
            assert server.request("GET", "/api/v1/cordons").json["items"] == []
    postgres.drop(url)


def unserved(server: RunningServer) -> set[str]:
    """The services that are not fully served."""
    items = server.request("GET", "/api/v1/services").json["items"]
    return {
        item["metadata"]["name"]
        for item in items
        for condition in item["status"].get("conditions", ())
        if (condition["type"], condition["status"]) == ("Planned", "False")
    }
