"""What may be asked of a campaign, who may ask, and what a node's word counts for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.campaigns.running import ask, asked, declare_model
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type, model, node

SETTING = {"batch": 1, "smPercent": 100.0, "clockMhz": 1530}
ONE = {"batches": [1], "smPercents": [100]}


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", GPUWRIGHT_RATE_BURST="100000") as running:
        world = [gpu_type(), node("node-1"), node("node-2", templates=["triton"]), model("bare")]
        assert running.request("POST", "/api/v1/apply", world).status == 200
        declare_model(running)
        yield running
    postgres.drop(url)


@pytest.fixture(autouse=True)
def no_campaign_is_left(server: RunningServer) -> Iterator[None]:
    yield
    for item in server.request("GET", "/api/v1/campaigns").json["items"]:
        server.request("DELETE", f"/api/v1/campaigns/{item['id']}")


def told(server: RunningServer, body: dict[str, Any], name: str = "node-1") -> Any:
    """What the server answers to the node."""
    token = server.token("node", node=name)
    reply = server.request("POST", f"/api/v1/nodes/{name}/profiling", body, token=token)
    assert reply.status == 200, reply.text
    return reply.json


def measured(sequence: int = 1, setting: dict[str, Any] = SETTING, **fields: Any) -> dict[str, Any]:
    known = {
        "sequence": sequence,
        "setting": setting,
        "at": "2026-06-01T12:00:00Z",
        "latencyMs": 4.0,
        "spreadMs": 0.1,
        "samples": 10,
        "memoryGib": 1.5,
    }
    return known | fields


def cordons(server: RunningServer) -> list[tuple[str, int, str]]:
    items = server.request("GET", "/api/v1/cordons").json["items"]
    return [(item["node"], item["gpu"], item["mode"]) for item in items]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "nothing"}, 404, "nothing"),
        ({"model": "bare"}, 422, "no runtime"),
        ({"variant": "int4"}, 422, "it has fp16"),
        ({"node": "node-9"}, 404, "node-9"),
        ({"node": "node-2"}, 422, "it offers triton"),
        ({"gpu": 4}, 422, "GPUs 0..3"),
        ({"gpu": -1}, 422, "gpu"),
        ({"gpu": "0"}, 422, "gpu"),
        ({"accuracy": 0}, 422, "accuracy"),
        ({"accuracy": 2}, 422, "accuracy"),
        ({"batches": []}, 422, "batches"),
        ({"batches": [0]}, 422, "batches"),
        ({"batches": [257]}, 422, "batches"),
        ({"smPercents": [101]}, 422, "smPercents"),
        ({"smPercents": [10.5]}, 422, "smPercents"),
        ({"clocksMhz": [1000]}, 422, "600, 900, 1200, 1530"),
        ({"most": 1}, 422, "most"),
        ({"most": 257}, 422, "most"),
        ({"leastSeconds": -1}, 422, "leastSeconds"),
        ({"color": "red"}, 422, "color"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_by_name(
    server: RunningServer, fields: dict[str, Any], status: int, words: str
) -> None:
    reply = ask(server, **fields)
    assert reply.status == status, reply.text
    assert words in reply.text
    assert cordons(server) == []


@pytest.mark.slow
def test_a_cordoned_gpu_is_refused_and_another_one_chosen(server: RunningServer) -> None:
    server.request("POST", "/api/v1/nodes/node-1/cordon", {"gpu": 0})
    refused = ask(server, gpu=0)
    assert refused.status == 409
    assert refused.json["detail"].startswith("node-1/0 is cordoned, so nothing is measured there")
    campaign = asked(server)
    assert cordons(server) == [("node-1", 0, "cordon"), ("node-1", 1, "profile")]
    server.request("DELETE", f"/api/v1/campaigns/{campaign.id}")
    server.request("POST", "/api/v1/nodes/node-1/drain", {})
    assert (
        ask(server)
        .json["detail"]
        .endswith("node-1 is being drained, so nothing is measured there; first: gpuwright uncordon node-1")
    )
    server.request("POST", "/api/v1/nodes/node-1/uncordon", {})
    assert cordons(server) == []


@pytest.mark.slow
def test_a_campaign_reserves_its_gpu_until_it_ends(server: RunningServer) -> None:
    campaign = asked(server, gpu=2)
    assert cordons(server) == [("node-1", 2, "profile")]
    lifted = server.request("POST", "/api/v1/nodes/node-1/uncordon", {"gpu": 2})
    assert lifted.status == 409
    assert f"gpuwright profile --stop {campaign.id}" in lifted.json["detail"]
    again = ask(server, gpu=3)
    assert again.status == 409
    stopped = server.request("DELETE", f"/api/v1/campaigns/{campaign.id}").json
    assert (stopped["state"], stopped["reason"]) == ("stopped", "asked")
    assert cordons(server) == []
    assert server.request("DELETE", f"/api/v1/campaigns/{campaign.id}").json == stopped
    audited = server.request("GET", "/api/v1/audit?limit=2").json["items"]
    assert [(entry["verb"], entry["kind"]) for entry in audited] == [("stop", "Campaign"), ("create", "Campaign")]


@pytest.mark.slow
def test_scopes(server: RunningServer) -> None:
    campaign = asked(server)
    path = f"/api/v1/campaigns/{campaign.id}"
    for scope, tenant, reads, writes in (
        ("viewer", "", 200, 403),
        ("operator", "", 200, 200),
        ("viewer", "shop", 403, 403),
        ("operator", "shop", 403, 403),
    ):
        token = server.token(scope, tenant=tenant)
        assert server.request("GET", path, token=token).status == reads
        assert server.request("DELETE", path, token=token).status == writes
    body = {"campaign": campaign.id}
    assert server.request("POST", "/api/v1/nodes/node-1/profiling", body).status == 403
    other = server.token("node", node="node-2")
    assert server.request("POST", "/api/v1/nodes/node-1/profiling", body, token=other).status == 403


@pytest.mark.slow
def test_a_result_counts_once_and_only_if_it_was_asked_for(server: RunningServer) -> None:
    campaign = asked(server, **ONE)
    early = {"campaign": campaign.id, "measured": measured()}
    given = told(server, early)
    assert campaign.read()["measurements"] == [], "nothing was asked for yet"
    assert given["task"]["setting"] == SETTING
    wrong = {"campaign": campaign.id, "measured": measured(setting=SETTING | {"batch": 4})}
    assert told(server, wrong)["task"] == given["task"], "what is due stays the same"
    assert told(server, {"campaign": "c-other", "measured": measured()})["task"] == given["task"]
    assert told(server, {"campaign": campaign.id, "measured": measured(sequence=2)})["task"] == given["task"]
    assert campaign.read()["measurements"] == []
    right = {"campaign": campaign.id, "measured": measured()}
    assert told(server, right) == {"isOver": True}
    assert told(server, right) == {"isOver": True}
    ended = campaign.read()
    assert (ended["state"], len(ended["measurements"])) == ("done", 1)
    value = {"mean": 4.0, "q90": 4.1282, "n": 1, "at": "2026-06-01T12:00:00Z", "source": "measured"}
    assert ended["profiles"][0]["spec"]["latencyMs"] == {"1": {"100": value}}
    assert ended["profiles"][0]["spec"]["memoryGib"] == {"1": 1.5}


@pytest.mark.slow
@pytest.mark.parametrize("value", [0, -1, float("nan"), "4", True, None])
def test_a_result_that_is_no_measurement_is_refused(server: RunningServer, value: object) -> None:
    campaign = asked(server, **ONE)
    told(server, {"campaign": campaign.id})
    token = server.token("node", node="node-1")
    body = {"campaign": campaign.id, "measured": measured(latencyMs=value)}
    reply = server.request("POST", "/api/v1/nodes/node-1/profiling", body, token=token)
    assert reply.status == 422
    assert campaign.read()["measurements"] == []


@pytest.mark.slow
def test_what_fails_twice_is_left_out_with_all_larger_batches(server: RunningServer) -> None:
    campaign = asked(server, batches=[1, 8], smPercents=[100])
    first = told(server, {"campaign": campaign.id})["task"]
    assert first["setting"]["batch"] == 8
    failed = {"sequence": 1, "setting": first["setting"], "reason": "exited", "message": "out of memory", "attempt": 1}
    second = told(server, {"campaign": campaign.id, "failed": failed})["task"]
    assert (second["setting"], second["attempt"]) == (first["setting"], 2)
    repeated = told(server, {"campaign": campaign.id, "failed": failed})["task"]
    assert repeated == second, "its answer may have been lost: it counts once"
    last = told(server, {"campaign": campaign.id, "failed": failed | {"attempt": 2}})
    assert last["task"]["setting"]["batch"] == 1
    told(server, {"campaign": campaign.id, "measured": measured()})
    ended = campaign.read()
    assert ended["state"] == "done"
    assert [failure["message"] for failure in ended["failures"]] == ["out of memory"] * 2


@pytest.mark.slow
def test_a_model_that_never_starts_fails_its_campaign_with_the_reason(server: RunningServer) -> None:
    campaign = asked(server, **ONE)
    for attempt in (1, 2):
        told(server, {"campaign": campaign.id})
        failed = {
            "sequence": 1, "setting": SETTING, "reason": "exited", "message": "no such file", "attempt": attempt
        }  # fmt: skip
        answer = told(server, {"campaign": campaign.id, "failed": failed})
    assert answer == {"isOver": True}
    ended = campaign.read()
    assert (ended["state"], ended["reason"], ended["message"]) == ("failed", "exited", "exited: no such file")


@pytest.mark.slow
def test_a_gpu_that_is_occupied_is_waited_for(server: RunningServer) -> None:
    campaign = asked(server, **ONE)
    answer = told(server, {"campaign": campaign.id, "occupied": "on GPU 0: search-1"})
    assert "task" not in answer and not answer.get("isOver")
    found = campaign.read()
    assert (found["state"], found["message"]) == ("waiting", "on GPU 0: search-1")
    assert told(server, {"campaign": campaign.id})["task"]["setting"] == SETTING


@pytest.mark.slow
def test_the_campaign_of_a_deleted_node_ends(server: RunningServer) -> None:
    assert server.request("POST", "/api/v1/apply", [node("spare")]).status == 200
    campaign = asked(server, node="spare", **ONE)
    assert server.request("DELETE", "/api/v1/nodes/spare").status == 200
    until(lambda: campaign.read()["reason"] == "node_gone", "housekeeping ends it")
    assert campaign.read()["state"] == "failed"


@pytest.mark.slow
def test_a_node_without_a_campaign_has_nothing_to_measure(server: RunningServer) -> None:
    assert told(server, {"campaign": "c-gone", "measured": measured()}) == {"isOver": True}
    assert server.request("GET", "/api/v1/campaigns/c-gone").status == 404
