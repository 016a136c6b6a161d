"""What runs on a node as its people see it, and as a tenant does; and what it refused, in the audit once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.store.database.database import Database
from app.store.fleet import assignments
from tests.support.reports import instance, report, send
from tests.support.server import Reply, RunningServer

COPIES = [
    {"id": "a.2", "instance": "a", "gpu": 0, "stage": "warming", "smPercent": 30, "address": "127.0.0.1:9001"},
    {"id": "a.1", "instance": "a", "gpu": 0, "stage": "ready", "routed": True, "address": "127.0.0.1:9000"},
    {"id": "secret.1", "instance": "secret", "gpu": 1, "stage": "draining"},
]
HELD = [
    {"instance": "b", "reason": "no_room_to_hand_over", "message": "beside secret it needs 10 %", "needsSmPercent": 10},
    {"instance": "c", "reason": "no_memory", "message": "needs 4 GiB"},
    {"instance": "other", "reason": "gpu_fenced"},
]
SINCE = "2026-11-20T12:00:00Z"
MOVED = [
    {"knob": "clockMhz", "gpu": 0, "planned": 1200, "value": 900, "reason": "over_cap", "since": SINCE},
    {"knob": "batch", "gpu": 1, "planned": 8, "value": 4, "reason": "over_slo", "since": SINCE, "instance": "secret"},
]
RUNNING = [instance("a"), instance("secret", tenant="lab", service="classify", gpu=1)]


def decide(database: Database, node: str, generation: int = 1) -> None:
    owners = {"a": "shop", "b": "shop", "c": "shop", "secret": "lab", "other": "lab"}
    instances = [{"id": name, "gpu": 0, "tenant": tenant, "service": f"of-{name}"} for name, tenant in owners.items()]

    def body(version: int) -> str:
        head = {"node": node, "version": version, "epoch": 1, "generation": generation}
        return json.dumps(head | {"instances": instances})

    drafts = [assignments.AssignmentDraft(node, generation, body)]
    assert database.write(lambda connection: assignments.write(connection, 1, drafts))


def state(server: RunningServer, node: str, token: str | None = None) -> Reply:
    return server.request("GET", f"/api/v1/nodes/{node}/state", token=token)


def tell(server: RunningServer, token: str, node: str, sequence: int = 1, **said: Any) -> None:
    told: dict[str, Any] = {
        "instances": RUNNING,
        "copies": COPIES,
        "heldBack": HELD,
        "excursions": MOVED,
        "repartition": [1],
    } | said
    assert send(server, token, report(node, sequence, **told)).status == 200


def audited(server: RunningServer, node: str) -> list[Any]:
    entries = server.request("GET", "/api/v1/audit?limit=500").json["items"]
    return [one for one in entries if one["kind"] == "Instance" and f"{node} refused" in one["detail"]]


@pytest.mark.slow
def test_copies_what_is_held_back_and_excursions_can_be_read_with_their_owners(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    assert state(server, node).status == 404
    decide(database, node)
    tell(server, token, node)
    found = state(server, node).json
    assert [(copy["id"], copy["stage"], copy["service"]) for copy in found["copies"]] == [
        ("a.2", "warming", "of-a"),
        ("a.1", "ready", "of-a"),
        ("secret.1", "draining", "of-secret"),
    ]
    held = found["heldBack"][0]
    assert (held["instance"], held["reason"], held["service"]) == ("b", "no_room_to_hand_over", "of-b")
    assert (found["excursions"][0]["value"], found["excursions"][1]["tenant"]) == (900, "lab")
    assert (found["repartition"], found["health"], found["node"]) == ([1], "ok", node)
    assert state(server, node, server.token("viewer")).json == found
    assert state(server, node, token).status == 403


@pytest.mark.slow
def test_the_newest_state_replaces_the_one_before(server: RunningServer, node: str, token: str) -> None:
    tell(server, token, node, 1)
    tell(server, token, node, 3, copies=COPIES[1:2], heldBack=[], excursions=[], repartition=[])
    tell(server, token, node, 2)
    found = state(server, node).json
    assert ([copy["id"] for copy in found["copies"]], found["heldBack"], found["excursions"]) == (["a.1"], [], [])
    for sequence in (4, 5):
        tell(server, token, node, sequence, copies=[], heldBack=[], excursions=[], repartition=[])
    assert state(server, node).json["copies"] == []


def test_a_tenant_sees_its_own_and_counts_of_another(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    decide(database, node)
    tell(server, token, node)
    found = state(server, node, server.token("viewer", tenant="shop"))
    told = found.json
    assert [copy["id"] for copy in told["copies"]] == ["a.2", "a.1"]
    assert [(one["instance"], one.get("message")) for one in told["heldBack"]] == [("b", None), ("c", "needs 4 GiB")]
    assert told["others"] == {"tenant": "another tenant", "copies": 1, "heldBack": 1}
    assert ([one["knob"] for one in told["excursions"]], told["repartition"]) == (["clockMhz"], [])
    for word in ("secret", "lab", "other-", "127.0.0.1", "of-other"):
        assert word not in found.text


def test_a_node_on_which_a_tenant_has_nothing_does_not_exist_for_it(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    decide(database, node)
    tell(server, token, node)
    stranger = server.token("viewer", tenant="stranger")
    there, nowhere = state(server, node, stranger), state(server, "absent", stranger)
    assert (there.status, nowhere.status) == (404, 404)
    assert there.json["detail"].replace(node, "*") == nowhere.json["detail"].replace("absent", "*")


@pytest.mark.parametrize("reason", ["refused_arguments", "no_template", "not_admitted"])
def test_case_27_a_refusal_leaves_one_audit_record_an_instance_and_generation(
    server: RunningServer, database: Database, node: str, token: str, reason: str
) -> None:
    decide(database, node, 7)
    held = [{"instance": "b", "reason": reason, "message": "LD_PRELOAD is no argument of gpuwright-serve"}]
    for sequence in range(3):
        tell(server, token, node, sequence, generation=7, heldBack=held)
    (entry,) = audited(server, node)
    assert (entry["verb"], entry["outcome"], entry["name"], entry["tenant"]) == ("run", "refused", "b", "shop")
    assert entry["detail"] == (
        f"{node} refused generation 7 of shop/of-b: {reason}: LD_PRELOAD is no argument of gpuwright-serve"
    )
    server_again = report(node, 9, generation=8, heldBack=held)
    assert send(server, token, server_again).status == 200
    assert len(audited(server, node)) == 2


def test_case_27_what_is_held_back_for_want_of_room_is_no_matter_for_the_audit(
    server: RunningServer, node: str, token: str
) -> None:
    tell(server, token, node)
    assert audited(server, node) == []


def test_case_27_a_thousand_refusals_do_not_fill_the_audit(server: RunningServer, node: str, token: str) -> None:
    held = [{"instance": f"i-{n}", "reason": "refused_arguments"} for n in range(1000)]
    for sequence in range(3):
        tell(server, token, node, sequence, heldBack=held)
    assert 20 <= len(audited(server, node)) <= 25
