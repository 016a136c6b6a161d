"""Two tenants share a fleet that is short of GPUs and whose solver fails: neither reads a name of the other."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import pytest

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.solve.inline import Inline
from app.manifests.offline import DeclaredFiles
from app.store.fleet import cordons
from simulation.run import Simulation, open_simulation
from simulation.world import put, read_documents
from solvers.planning.problem import Problem
from tests.app.api.test_isolation import routes
from tests.simulation.worlds import CALM_TICK_SECONDS, Document, document, gpu_type, node, policy
from tests.simulation.worlds import profile as profile_of
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer
from tests.support.reports import report, send
from tests.support.server import Reply, RunningServer, running_server

pytestmark = pytest.mark.slow

TENANTS = ("redwood", "bluewater")
SLO = {"latencyMs": 120, "percentile": 98}
ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}:\d+\b")
LAST = "last-of-all"


class Fails(Inline):
    """A solver that fails with a message full of names, as a judge's violations are."""

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        message = "the judge refuses the plan: " + "; ".join(f"{name}: memory_fits" for name in problem.services)
        return SolverAnswer(SolveOutcome.WRONG, None, message, {"kind": "solve", "seed": seed, "work": work})


def documents(rate: float) -> DeclaredFiles:
    """Each tenant has a private model, a service with room, one that nothing serves whole, and a job."""
    declared: list[Document] = [gpu_type(), policy(), node("node-0"), node("node-1")]
    for tenant in TENANTS:
        name = f"{tenant}-model"
        runtime = {"template": "gpuwright-serve", "args": {"model": name}}
        variant = {"name": "fp16", "accuracy": 0.76, "paramsM": 25, "runtime": runtime}
        declared.append(document("Model", name, {"variants": [variant], "tenants": [tenant]}))
        declared.append(profile_of(name))
        declared.append(document("Tenant", tenant, {"limit": {"gpus": 3}}))
        for part, wanted in (("small", rate), ("large", 9e3)):
            spec = {"model": name, "slo": SLO, "ratePerSecond": wanted}
            declared.append(document("Service", f"{tenant}-{part}", spec, tenant))
        speeds = {"v100-16gb": {"stepsPerSecond": {"20": 1.1, "100": 3.4}, "memoryGib": 9}}
        job = {"type": "training", "steps": 200_000, "profiles": speeds}
        declared.append(document("Job", f"{tenant}-job", job, tenant))
    return read_documents(declared)


@dataclass(frozen=True, slots=True)
class SharedFleet:
    """The server, a viewer's token of each tenant, and every instance of every plan."""

    server: RunningServer
    tokens: dict[str, str]
    instances: list[str]
    generations: int

    def read(self, tenant: str, path: str) -> Reply:
        return self.server.request("GET", path, token=self.tokens[tenant])


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[SharedFleet]:
    url = postgres.create()
    with open_simulation(url, documents(60.0)) as simulation:
        simulation.advance(70, CALM_TICK_SECONDS)
        drain(simulation)
        simulation.advance(40, CALM_TICK_SECONDS)
        simulation.planner.solver = Fails()
        put(simulation.database, documents(90.0))
        assert any(blamed(simulation) == set(TENANTS) for _ in simulation.seconds(300, CALM_TICK_SECONDS))
        postgres.stands_at(url, simulation.clock.now())
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", GPUWRIGHT_RATE_BURST="100000") as server:
        plans = server.request("GET", "/api/v1/plans?limit=500").json["items"]
        newest = server.request("GET", "/api/v1/plans/current").json
        report_addresses(server)
        instances = [line["id"] for line in newest["instances"]]
        tokens = {tenant: server.token("viewer", tenant=tenant) for tenant in TENANTS}
        yield SharedFleet(server, tokens, instances, max(plan["generation"] for plan in plans))
    postgres.drop(url)


def blamed(simulation: Simulation) -> set[str]:
    """The tenants of what the last cycle takes for the cause of the solver's failure."""
    return {item.tenant for item in simulation.last.suspects} if simulation.last else set()


def report_addresses(server: RunningServer) -> None:
    """Reports, as the node would, the copies of one node with addresses, as gateways need them."""
    there = server.request("GET", "/api/v1/nodes/node-0/state").json["copies"]
    assert {copy["tenant"] for copy in there} == set(TENANTS)
    fields = ("id", "instance", "gpu", "stage")
    message = f"next to {there[0]['instance']}, {there[-1]['instance']}"
    copies = [
        {name: copy[name] for name in fields} | {"address": f"10.0.0.5:{9000 + number}", "message": message}
        for number, copy in enumerate(there)
    ]
    body = report("node-0", incarnation=2**20, instances=[], copies=copies)
    assert send(server, server.token("node", node="node-0"), body).status == 200
    until(lambda: "10.0.0.5:9000" in server.request("GET", "/api/v1/endpoints").text, "the addresses are announced")


def drain(simulation: Simulation) -> None:
    simulation.database.write(lambda c: cordons.put(c, "node-1", 0, "drain", None, "night", "for redwood, bluewater"))


def test_the_world_holds_what_could_give_names_away(fleet: SharedFleet) -> None:
    server = fleet.server
    events = server.request("GET", "/api/v1/events?limit=500").text
    plan = server.request("GET", "/api/v1/plans/current").text
    assert "solver_wrong" in events and "unserved" in events and "the judge refuses the plan" in events
    assert all(f"{tenant}/{tenant}-large" in plan for tenant in TENANTS)
    for tenant in TENANTS:
        (served,) = [
            condition
            for condition in server.request("GET", f"/api/v1/services/{tenant}/{tenant}-small").json["status"][
                "conditions"
            ]
            if condition["type"] == "Planned"
        ]
        assert f"declared since it last answered: Service {tenant}/{tenant}-small" in served["message"]
        assert "memory_fits" not in served["message"]


@pytest.mark.parametrize("tenant", TENANTS)
def test_case_26_no_route_shows_a_tenant_a_name_of_another(fleet: SharedFleet, tenant: str) -> None:
    (other,) = set(TENANTS) - {tenant}
    read = 0
    for method, route in routes():
        if method != "GET" or route in ("/healthz", "/readyz", "/openapi.json", "/api/v1/watch"):
            continue
        for path in filled(fleet, route, tenant, other):
            reply = fleet.read(tenant, path)
            assert reply.status < 500, (path, reply.text)
            body = reply.text if reply.status < 300 else without_echo(reply.text, path)
            assert other not in body, (path, body)
            assert ADDRESS.search(body) is None, (path, body)
            read += reply.status == 200
    assert read > 30


@pytest.mark.parametrize("tenant", TENANTS)
def test_case_26_neither_the_console_nor_a_watch_shows_a_tenant_a_name_of_another(
    fleet: SharedFleet, tenant: str
) -> None:
    (other,) = set(TENANTS) - {tenant}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({"token": fleet.tokens[tenant]})
    opened = fleet.server.request("POST", "/sign-in", body, token="", headers=form)
    cookie = {"Cookie": opened.headers["set-cookie"].partition(";")[0]}
    page = fleet.server.request("GET", "/", token="", headers=cookie)
    assert page.status == 200
    assert tenant in page.text and other not in page.text
    watched = watch(fleet, tenant)
    assert f"{tenant}-small" in watched and other not in watched


def filled(fleet: SharedFleet, route: str, tenant: str, other: str) -> list[str]:
    """The paths of a route with every name that there is, the other tenant's included."""
    if "/reports/{name}" in route:
        items = fleet.server.request("GET", "/api/v1/reports").json["items"]
        return [f"/api/v1/reports/{item['name']}" for item in items]
    paths = [route.replace("/assignment", "/assignment?waitSeconds=0")]
    parts = {
        "{tenant}": [tenant, other],
        "{instance}": [quote(instance) for instance in fleet.instances],
        "{generation}": [str(number) for number in range(fleet.generations + 1)],
        "{token_id}": ["abcdefabcdef"],
        "{name}": ["node-0", "node-1", "v100-16gb", "default"]
        + [f"{owner}{part}" for owner in TENANTS for part in ("", "-small", "-large", "-job", "-model")],
    }
    for part, values in parts.items():
        paths = [path.replace(part, value) for path in paths for value in (values if part in path else [""])]
    return paths


def without_echo(text: str, path: str) -> str:
    """A refusal without the names that the request itself held."""
    for word in sorted(re.findall(r"[a-z0-9/-]+", path.removeprefix("/api/v1/")), key=len, reverse=True):
        for piece in sorted({word, *word.split("/")}, key=len, reverse=True):
            if len(piece) > 3:
                text = text.replace(piece, "*")
    return text


def watch(fleet: SharedFleet, tenant: str) -> str:
    """What a watch from the beginning shows, until what was written last."""
    name = f"{LAST}-{TENANTS.index(tenant)}"
    for owner in sorted(TENANTS, key=lambda owner: owner == tenant):
        spec = {"model": f"{owner}-model", "slo": SLO, "ratePerSecond": 1}
        path = f"/api/v1/services/{owner}/{name}"
        assert fleet.server.request("PUT", path, {"spec": spec}).status == 201
    connection = http.client.HTTPConnection("127.0.0.1", fleet.server.port, timeout=patience())
    headers = {"Authorization": f"Bearer {fleet.tokens[tenant]}"}
    connection.request("GET", "/api/v1/watch?resourceVersion=0", headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    lines = []
    for raw in response:
        lines.append(raw.decode())
        if f'"name":"{name}"' in lines[-1]:
            break
    connection.close()
    return "".join(lines)
