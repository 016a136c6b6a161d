"""A node is deleted only when nothing is assigned to it or runs there, or by force; each change is on the record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.reports import instance, report, send
from tests.support.server import Reply, RunningServer
from tests.support.world import node, service


def occupied(server: RunningServer, name: str) -> None:
    """Declares a node that reports a copy of shop/search and one that is gone."""
    assert server.request("PUT", f"/api/v1/nodes/{name}", node(name)).status == 201
    copies = [
        {"id": f"{name}-a.1", "instance": f"{name}-a", "gpu": 0, "stage": "ready"},
        {"id": f"{name}-b.1", "instance": f"{name}-b", "gpu": 1, "stage": "gone"},
    ]
    message = report(name, instances=[instance(f"{name}-a"), instance(f"{name}-b")], copies=copies)
    assert send(server, server.token("node", node=name), message).status == 200


def delete(server: RunningServer, name: str, query: str = "") -> Reply:
    return server.request("DELETE", f"/api/v1/nodes/{name}{query}")


def events_of(server: RunningServer, name: str) -> list[tuple[str, str]]:
    items = server.request("GET", f"/api/v1/events?name={name}").json["items"]
    return [(event["reason"], event["severity"]) for event in items]


def entries(server: RunningServer, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.request("GET", f"/api/v1/audit?{query}").json["items"]
    return found


@pytest.mark.slow
def test_a_node_on_which_something_runs_is_not_deleted_and_that_is_named(server: RunningServer) -> None:
    occupied(server, "busy")
    refused = delete(server, "busy")
    assert refused.status == 409
    assert "one instance is assigned to it or running there, of shop/search" in refused.json["detail"]
    assert "gpuwright drain busy" in refused.json["detail"]
    (occupant,) = refused.json["occupants"]
    assert (occupant["instance"], occupant["kind"], occupant["stage"]) == ("busy-a", "Service", "ready")
    assert refused.json["cost"] == {
        "instances": 1, "services": ["shop/search"], "jobs": [], "requestsPerSecond": 0,
    }  # fmt: skip
    assert server.request("GET", "/api/v1/nodes/busy").status == 200
    assert server.request("POST", "/api/v1/nodes/busy/drain", {}).status == 200
    assert "it is being drained, so wait until it is empty" in delete(server, "busy").json["detail"]


def test_a_set_that_leaves_an_occupied_node_out_does_not_prune_it(server: RunningServer) -> None:
    occupied(server, "unlisted")
    labelled = node("unlisted")
    labelled["metadata"]["labels"] = {"gpuwright.io/set": "racks"}
    assert server.request("PUT", "/api/v1/nodes/unlisted", labelled).status == 200
    pruned = server.request("POST", "/api/v1/apply?prune=true&set=racks", [node("node-1")])
    assert pruned.status == 409, pruned.text
    assert "unlisted" in pruned.json["detail"]


def test_force_deletes_a_node_and_leaves_an_event_and_an_audit_entry(server: RunningServer) -> None:
    occupied(server, "doomed")
    assert delete(server, "doomed", "?force=true&dryRun=true").status == 200
    assert events_of(server, "doomed")[0] == ("object_created", "info")
    assert delete(server, "doomed", "?force=true").status == 200
    assert events_of(server, "doomed")[0] == ("object_deleted", "warning")
    (entry,) = entries(server, "kind=Node&name=doomed&verb=delete")
    assert entry["before"]["metadata"]["name"] == "doomed" and entry["after"] is None


def test_only_nodes_are_deleted_by_force(server: RunningServer) -> None:
    assert server.request("DELETE", "/api/v1/models/resnet50?force=true").status == 400


@pytest.mark.parametrize(
    ("path", "referrer"),
    [
        ("gputypes/v100-16gb", {"kind": "Node", "name": "node-1"}),
        ("models/resnet50", {"kind": "Service", "tenant": "shop", "name": "search"}),
        ("tenants/shop", {"kind": "Service", "tenant": "shop", "name": "search"}),
    ],
)
def test_what_others_use_is_not_deleted_and_they_are_named(
    server: RunningServer, path: str, referrer: dict[str, str]
) -> None:
    refused = server.request("DELETE", f"/api/v1/{path}")
    assert refused.status == 409
    assert referrer in refused.json["referrers"]


def test_a_node_that_is_deleted_and_declared_again_is_no_longer_cordoned(server: RunningServer) -> None:
    assert server.request("PUT", "/api/v1/nodes/again", node("again")).status == 201
    assert server.request("POST", "/api/v1/nodes/again/drain", {}).status == 200
    assert delete(server, "again").status == 200
    assert server.request("PUT", "/api/v1/nodes/again", node("again")).status == 201
    assert server.request("GET", "/api/v1/cordons?node=again").json["items"] == []
    assert [entry["verb"] for entry in entries(server, "name=again&kind=Cordon")] == ["uncordon", "drain"]


def test_every_change_of_an_object_or_a_token_is_an_event_and_an_audit_entry(server: RunningServer) -> None:
    path = "/api/v1/services/shop/noted"
    assert server.request("PUT", path, service("noted", "shop")).status == 201
    headers = {"Content-Type": "application/merge-patch+json"}
    assert server.request("PATCH", path, b'{"spec": {"priority": 7}}', headers=headers).status == 200
    assert server.request("PATCH", path, b'{"spec": {"priority": 7}}', headers=headers).status == 200
    assert server.request("DELETE", path).status == 200
    assert [reason for reason, _ in events_of(server, "noted")] == [
        "object_deleted", "object_changed", "object_created",
    ]  # fmt: skip
    assert [entry["verb"] for entry in entries(server, "name=noted")] == ["delete", "update", "create"]
    for plural in ("tokens", "jointokens"):
        body = {"scope": "viewer"} if plural == "tokens" else {}
        made = server.request("POST", f"/api/v1/{plural}", body).json["id"]
        assert server.request("DELETE", f"/api/v1/{plural}/{made}").status == 200
        assert [reason for reason, _ in events_of(server, made)] == ["token_revoked", "token_created"]
        assert [entry["verb"] for entry in entries(server, f"name={made}")] == ["revoke", "create"]


def test_a_large_declaration_is_one_event_for_each_kind_and_tenant(server: RunningServer) -> None:
    many = [service(f"many-{number}", "crowd") for number in range(30)]
    assert server.request("POST", "/api/v1/apply", [*many, service("alone", "hermit")]).status == 200
    for tenant, message in (("crowd", "30 objects of kind Service were"), ("hermit", "1 object of kind Service was")):
        (event,) = server.request("GET", f"/api/v1/events?tenant={tenant}").json["items"]
        assert event["message"] == f"{message} created"
    assert len(entries(server, "tenant=crowd&limit=100")) == 30


def test_the_audit_is_read_page_by_page_and_by_admins_alone(server: RunningServer) -> None:
    many = [service(f"paged-{number}", "paged") for number in range(5)]
    assert server.request("POST", "/api/v1/apply", many).status == 200
    found, cursor = [], ""
    while True:
        page = server.request("GET", f"/api/v1/audit?tenant=paged&limit=2&cursor={cursor}").json
        found += [entry["name"] for entry in page["items"]]
        cursor = page["metadata"]["next"] or ""
        if not cursor:
            break
    assert sorted(found) == [f"paged-{number}" for number in range(5)]
    for role in (server.token("operator"), server.token("viewer"), server.token("operator", tenant="paged")):
        assert server.request("GET", "/api/v1/audit", token=role).status == 403
