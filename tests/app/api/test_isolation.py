"""Who may do what, asked of every route there is: generated from the routes and the access table."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

import pytest
from fastapi import APIRouter

import app.api
from app.access import TABLE, AccessVerb, Noun, Role
from app.main import assemble
from app.manifests.model import BY_PLURAL, Kind
from app.settings import Settings
from tests.app.console.visits import session
from tests.support.patience import patience, until
from tests.support.reports import instance, note_assigned, report, send
from tests.support.server import Reply, RunningServer
from tests.support.world import gpu_type, job, manifest, model, node, profile, service

POOL = {"gpusPerNode": 1, "cpuCores": 8, "memoryGib": 32, "max": 2, "hook": "cloud"}
MERGE = {"Content-Type": "application/merge-patch+json"}
OPEN = {"/healthz", "/readyz", "/openapi.json", "/api/v1/join", "/api/v1/people"}  # no token needed
ANY_TOKEN = {"/api/v1/whoami"}
BY_DOCUMENT = {"/api/v1/apply", "/api/v1/watch"}  # what they may do depends on what they are asked for
NOUNS: dict[str, Kind | Noun] = {
    "/api/v1/tokens": Noun.TOKEN,
    "/api/v1/tokens/{token_id}": Noun.TOKEN,
    "/api/v1/jointokens": Noun.JOIN_TOKEN,
    "/api/v1/jointokens/{token_id}": Noun.JOIN_TOKEN,
    "/api/v1/audit": Noun.AUDIT,
    "/metrics": Noun.METRICS,
    "/api/v1/nodes/{name}/report": Noun.REPORT,
    "/api/v1/nodes/{name}/profiling": Noun.REPORT,
    "/api/v1/nodes/{name}/logs": Noun.REPORT,
    "/api/v1/logs/services/{tenant}/{name}": Kind.SERVICE,
    "/api/v1/logs/jobs/{tenant}/{name}": Kind.JOB,
    "/api/v1/campaigns": Noun.CAMPAIGN,
    "/api/v1/campaigns/{campaign}": Noun.CAMPAIGN,
    "/api/v1/nodes/{name}/assignment": Noun.ASSIGNMENT,
    "/api/v1/nodes/{name}/telemetry": Noun.TELEMETRY,
    "/api/v1/nodes/{name}/state": Noun.NODE_STATE,
    "/api/v1/nodes/{name}/token": Noun.NODE_TOKEN,
    "/api/v1/endpoints": Noun.ENDPOINTS,
    "/api/v1/gateways/{name}/counts": Noun.GATEWAY_COUNTS,
    "/api/v1/plans": Noun.PLAN,
    "/api/v1/plans/current": Noun.PLAN,
    "/api/v1/plans/hold": Noun.PLAN,
    "/api/v1/plans/{generation}": Noun.PLAN,
    "/api/v1/plans/{generation}/diff": Noun.PLAN,
    "/api/v1/plans/{generation}/record": Noun.PLAN_RECORD,
    **{
        f"/api/v1/plans/{{generation}}/{verb}": Noun.PLAN
        for verb in ("approve", "reject", "pause", "resume", "abort", "rollback")
    },
    "/api/v1/explain/services/{tenant}/{name}": Kind.SERVICE,
    "/api/v1/explain/jobs/{tenant}/{name}": Kind.JOB,
    "/api/v1/explain/instances/{instance}": Noun.PLAN,
    "/api/v1/explain/profiles/{name}": Kind.PROFILE,
    "/api/v1/explain/nodes/{name}": Kind.NODE,
    "/api/v1/explain/pools/{name}": Kind.POOL,
    "/api/v1/explain/tenants/{name}": Noun.PLAN,
    "/api/v1/explain/plans/{generation}": Noun.PLAN,
    "/api/v1/whatif": Noun.WHAT_IF,
    "/api/v1/cordons": Noun.CORDON,
    **{f"/api/v1/nodes/{{name}}/{verb}": Noun.CORDON for verb in ("cordon", "drain", "reclaim", "uncordon")},
    "/api/v1/events": Noun.EVENT,
    "/api/v1/slo": Noun.ATTAINMENT,
    "/api/v1/overview": Noun.OVERVIEW,
    "/api/v1/sign-in-links": Noun.SIGN_IN_LINK,
    "/api/v1/scale": Noun.SCALE,
    "/api/v1/webhooks": Noun.WEBHOOK,
    **{f"/api/v1/webhooks/{{name}}/{what}": Noun.WEBHOOK for what in ("dead-letters", "retry", "try")},
    **{f"/api/v1/scale/{verb}": Noun.SCALE for verb in ("pause", "resume")},
    **{f"/api/v1/scale/{{generation}}/{verb}": Noun.SCALE for verb in ("approve", "reject")},
    "/api/v1/reports": Noun.MONEY,
    "/api/v1/reports/{name}": Noun.MONEY,
}
SCALED = {"workloads": ["shop/Deployment/search"]}
CANARY = "canary"  # part of every name of the other tenant's things
LAST = "told-last"
OF_A_TENANT = (Role.TENANT_VIEWER, Role.TENANT_OPERATOR)


@cache
def routes() -> list[tuple[str, str]]:
    assembled = assemble(Settings(database_url="postgresql://nobody@127.0.0.1/none"))
    found = [(method.upper(), path) for path, methods in assembled.openapi()["paths"].items() for method in methods]
    assert len(found) > 40
    return found


def noun_of(path: str) -> Kind | Noun:
    if path in NOUNS:
        return NOUNS[path]
    first = path.removeprefix("/api/v1/").split("/")[0]
    assert first in BY_PLURAL, f"say in NOUNS what {path} is about, so that its access can be tested"
    return BY_PLURAL[first]


GUARDED = [(method, path) for method, path in routes() if path not in OPEN | ANY_TOKEN | BY_DOCUMENT]


@pytest.fixture(scope="module")
def world(server: RunningServer) -> RunningServer:
    """What belongs to tenant `other`, each thing with the canary in its name."""
    documents = [
        model(f"{CANARY}-model", tenants=["other"]),
        profile(f"{CANARY}-model"),
        service(f"{CANARY}-service", "other", f"{CANARY}-model"),
        job(f"{CANARY}-job", "other"),
    ]
    reply = server.request("POST", "/api/v1/apply", documents)
    assert reply.status == 200, reply.text
    note_assigned(server.database_url, "node-1", CANARY, f"other/{CANARY}-service")
    copy = {"id": f"{CANARY}.1", "instance": CANARY, "gpu": 0, "stage": "ready", "address": "10.0.0.1:9000"}
    theirs = report("node-1", instances=[instance(CANARY, tenant="other", service=f"{CANARY}-service")], copies=[copy])
    assert send(server, server.token("node", node="node-1"), theirs).status == 200
    # The first answer may be of the moment before the report: nobody waits for a version that it does not know.
    until(
        lambda: CANARY in server.request("GET", "/api/v1/endpoints").text, "the copy of the other tenant is announced"
    )
    return server


@pytest.fixture(scope="module")
def tokens(world: RunningServer) -> dict[Role, str]:
    return {
        Role.VIEWER: world.token("viewer"),
        Role.OPERATOR: world.token("operator"),
        Role.ADMIN: world.token("admin"),
        Role.NODE: world.token("node", node="node-1"),
        Role.GATEWAY: world.token("gateway", gateway="edge-1"),
        Role.TENANT_VIEWER: world.token("viewer", tenant="shop"),
        Role.TENANT_OPERATOR: world.token("operator", tenant="shop"),
    }


def test_no_route_hides_from_the_document_that_these_tests_are_made_of() -> None:
    modules = [importlib.import_module(found.name) for found in pkgutil.walk_packages(app.api.__path__, "app.api.")]
    routers = [module.router for module in modules if isinstance(getattr(module, "router", None), APIRouter)]
    assert len(routers) > 15
    hidden = [route for router in routers for route in router.routes if not getattr(route, "include_in_schema", False)]
    assert hidden == []


def test_the_table_speaks_of_every_role() -> None:
    assert set(TABLE) == set(Role)


def find_peer(number: int) -> str:
    """Returns an address for an operation: one that guesses often is refused, whatever it asks for."""
    return f"127.1.{1 + number // 200}.{1 + number % 200}"


@pytest.mark.parametrize(("method", "path"), [each for each in routes() if each[1] not in OPEN])
def test_no_operation_answers_without_a_token(server: RunningServer, method: str, path: str) -> None:
    reply = server.request(method, filled(path, "any"), token="", peer=find_peer(1000 + routes().index((method, path))))
    assert is_due(reply, method, path, "none", None), reply.text


@pytest.mark.slow
def test_every_operation_answers_each_kind_of_token_as_the_table_says(
    world: RunningServer, tokens: dict[Role, str]
) -> None:
    without_a_right = {kind: (None, text) for kind, text in ended_tokens(world).items()}
    others = {
        "another node": (Role.NODE, world.token("node", node="node-2")),
        "another gateway": (Role.GATEWAY, world.token("gateway", gateway="edge-2")),
        "another tenant": (Role.TENANT_OPERATOR, world.token("operator", tenant="lab")),
    }
    of_roles = {role.value: (role, text) for role, text in tokens.items()}
    kinds: Mapping[str, tuple[Role | None, str]] = {**of_roles, **others}
    for _, text in kinds.values():  # an address that guesses is refused with what is not known to be good
        assert world.request("GET", "/api/v1/whoami", token=text).status == 200
    wrong = []
    for number, (method, path) in enumerate(routes()):
        for kind, (role, text) in {**kinds, **without_a_right}.items():
            reply = world.request(
                method,
                filled(path, "shop").replace("/watch", "/watch?resourceVersion=never"),
                *sample(method, path),
                token="" if kind == "cookie" else text,
                headers=head(method) | ({"Cookie": text} if kind == "cookie" else {}),
                peer=find_peer(number),
            )
            if reply.status >= 500 or not is_due(reply, method, path, kind, role):
                wrong.append((method, path, kind, reply.status, reply.text))
    assert wrong == []


def ended_tokens(world: RunningServer) -> dict[str, str]:
    """What gives no right to the API: the cookie of the console is for its pages alone."""
    revoked = world.token("admin")
    assert world.request("DELETE", f"/api/v1/tokens/{revoked.split('_')[1]}").status == 200
    return {
        "none": "",
        "garbage": "gw_abcdefabcdef_nonsense",
        "revoked": revoked,
        "expired": world.token("admin", expires_in_seconds=-1.0),
        "cookie": session(world, world.admin_token),
    }


def is_due(reply: Reply, method: str, path: str, kind: str, role: Role | None) -> bool:
    """Tells whether an answer is as the table has it for this kind of token."""
    if path in OPEN:
        return reply.status != 403
    if role is None:
        is_problem = reply.headers["content-type"] == "application/problem+json"
        return reply.status == 401 and is_problem and reply.headers["www-authenticate"].startswith("Bearer")
    if path in ANY_TOKEN | BY_DOCUMENT:
        return reply.status != 401
    verb = AccessVerb.READ if method == "GET" else AccessVerb.WRITE
    granted = (noun_of(path), verb) in TABLE[role]
    whose = {"another node": "/nodes/{name}/", "another gateway": "/gateways/{name}/", "another tenant": "{tenant}"}
    if kind in whose and whose[kind] in path:
        granted = False
    return reply.status not in (401, 403) if granted else reply.status in (403, 404)


@pytest.mark.parametrize(("method", "path"), [(m, p) for m, p in GUARDED if "{" in p])
def test_what_another_tenant_has_looks_exactly_like_what_is_not_there(
    world: RunningServer, tokens: dict[Role, str], method: str, path: str
) -> None:
    wrong = []
    for role in OF_A_TENANT:
        there = ask(world, tokens[role], method, path, CANARY)
        nowhere = ask(world, tokens[role], method, path, "absent")
        if there.status not in (403, 404) or comparable(there, CANARY) != comparable(nowhere, "absent"):
            wrong.append((role, there.status, there.text, nowhere.status, nowhere.text))
    assert wrong == []


def ask(world: RunningServer, token: str, method: str, path: str, marker: str) -> Reply:
    plural = path.removeprefix("/api/v1/").split("/")[0]
    plural = path.split("/")[4] if plural == "explain" else plural
    last = {"services": "service", "jobs": "job", "models": "model", "profiles": "model-fp16-v100"}.get(plural, "thing")
    target = path.replace("{tenant}", "other").replace("{name}", f"{marker}-{last}").replace("{token_id}", marker)
    target = target.replace("{generation}", "7").replace("{instance}", f"{marker}-instance")
    target = target.replace("{campaign}", marker)
    return world.request(method, target, *sample(method, path), token=token, headers=head(method))


def comparable(reply: Reply, marker: str) -> tuple[int, str]:
    body = json.loads(reply.text)
    body.pop("requestId")
    return reply.status, json.dumps(body).replace(marker, "*")


LISTS = [p for m, p in GUARDED if m == "GET" and "{" not in p]
QUERIES = ["", "?tenant=other", "?labelSelector=team", "?fieldSelector=spec.model%3Dcanary-model", "?limit=500"]


@pytest.mark.parametrize("path", LISTS)
def test_no_list_shows_another_tenant(world: RunningServer, tokens: dict[Role, str], path: str) -> None:
    wrong = []
    for role, query in product(OF_A_TENANT, QUERIES):
        reply = world.request("GET", path + query, token=tokens[role])
        told = reply.text if reply.status < 300 else reply.json["detail"]
        if CANARY in told or "other" in told:
            wrong.append((role, query, told))
    assert wrong == []


def test_a_tenant_watches_its_own_and_nothing_of_others(world: RunningServer, tokens: dict[Role, str]) -> None:
    assert world.request("PUT", f"/api/v1/services/shop/{LAST}", service(LAST, "shop")).status == 201
    seen = "".join(stream(world, "/api/v1/watch?resourceVersion=0", tokens[Role.TENANT_VIEWER]))
    assert '"name":"search"' in seen
    assert CANARY not in seen
    assert '"tenant":"lab"' not in seen


def test_a_model_that_is_not_admitted_reads_like_one_that_does_not_exist(
    world: RunningServer, tokens: dict[Role, str]
) -> None:
    def refused(name: str) -> str:
        wanted = service("probe", "shop", name)
        reply = world.request("PUT", "/api/v1/services/shop/probe", wanted, token=tokens[Role.TENANT_OPERATOR])
        assert reply.status == 422
        return comparable(reply, name)[1]

    assert refused("canary-model") == refused("absent-model")


def test_an_idempotency_key_of_another_principal_means_nothing(world: RunningServer, tokens: dict[Role, str]) -> None:
    key = {"Idempotency-Key": "shared-key"}
    mine = world.request("PUT", "/api/v1/gputypes/keyed", gpu_type("keyed"), headers=key)
    assert mine.status == 201
    theirs = world.request(
        "PUT",
        "/api/v1/services/shop/keyed",
        service("keyed", "shop"),
        token=tokens[Role.TENANT_OPERATOR],
        headers=key,
    )
    assert theirs.status == 201
    assert "keyed" in theirs.json["metadata"]["name"]
    assert "idempotency-replayed" not in theirs.headers


def test_a_tenant_is_not_told_which_others_a_model_admits(world: RunningServer, tokens: dict[Role, str]) -> None:
    world.request("PUT", "/api/v1/models/shared", model("shared", tenants=["shop", "other"]))
    reply = world.request("GET", "/api/v1/models/shared", token=tokens[Role.TENANT_VIEWER])
    assert reply.json["spec"]["tenants"] == ["shop"]


def filled(path: str, tenant: str) -> str:
    # A node's token ends with its Node, so the one deleted on the way is another.
    name = "node-1" if "/nodes/{name}/" in path else "edge-1" if "/gateways/" in path else "search"
    path = path.replace("/assignment", "/assignment?waitSeconds=0")
    path = path.replace("{generation}", "7").replace("{instance}", "shop/search/1").replace("{campaign}", "c-1")
    return path.replace("{tenant}", tenant).replace("{name}", name).replace("{token_id}", "abcdefabcdef")


def head(method: str) -> dict[str, str]:
    if method == "PATCH":
        return MERGE
    return {} if method in ("GET", "DELETE") else {"Content-Type": "application/json"}


def sample(method: str, path: str) -> tuple[bytes, ...]:
    """A body that would be right for the route, so that only access decides."""
    if method == "PATCH":
        return (b'{"metadata": {"labels": {}}}',)
    if path == "/api/v1/sign-in-links" or path.startswith("/api/v1/webhooks/"):
        return ()
    if method == "POST":
        right: dict[str, object] = {
            "/api/v1/tokens": {"scope": "viewer"},
            "/api/v1/campaigns": {"model": "search", "node": "node-1"},
            **dict.fromkeys(map("/api/v1/scale/{{generation}}/{}".format, ("approve", "reject")), SCALED),
        }
        return (json.dumps(right.get(path, {})).encode(),)
    if path == "/api/v1/gateways/{name}/counts":
        return (b'{"began": "now", "sequence": 1}',)
    if method == "PUT":
        noun = noun_of(path)
        made = {
            Kind.GPU_TYPE: gpu_type("search"),
            Kind.NODE: node("node-1"),
            Kind.POOL: manifest("Pool", "search", POOL | {"gpuType": node("node-1")["spec"]["gpuType"]}),
            Kind.MODEL: model("search"),
            Kind.PROFILE: profile("resnet50"),
            Kind.SERVICE: service("search", "shop"),
            Kind.JOB: job("search", "shop"),
            Kind.POLICY: manifest("Policy", "default", {}),
            Kind.TENANT: manifest("Tenant", "search", {}),
        }
        assert isinstance(noun, Kind)
        return (json.dumps({"spec": made[noun]["spec"]}).encode(),)
    return ()


def stream(world: RunningServer, path: str, token: str) -> Iterator[str]:
    """What a watch sends until what was written last; changes come in their order."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=patience())
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    assert response.status == 200
    for raw in response:
        line = raw.decode()
        yield line
        if f'"name":"{LAST}"' in line:
            break
    connection.close()
