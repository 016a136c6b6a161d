"""Agents of another version against a real server: what they said when they were recorded, and what they make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest

from agents.contract.assignments import AssignedGpu, AssignedInstance, Assignment, Frame
from app.store.database.database import Database
from app.store.fleet import assignments
from tests.agents import contract_1
from tests.agents.test_contract import RECORDED_LATER_REPORT, RECORDED_REPORT
from tests.support.postgres import DatabaseServer
from tests.support.reports import this_minute
from tests.support.server import Reply, RunningServer, running_server
from tests.support.world import gpu_type

# The first agents' words on joining; they read `node` and `token` of the answer, and nothing else.
RECORDED_JOIN = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    """Its database knows the time of the recordings as long ago: their minutes are brought up to date."""
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1") as running:
        assert running.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
        yield running
    postgres.drop(url)


@pytest.fixture(scope="module")
def token(server: RunningServer) -> str:
    one_time = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    words = {"token": one_time, "node": "node-1", **RECORDED_JOIN}
    joined = server.request("POST", "/api/v1/join", words, token="")
    assert joined.status == 201
    return str(joined.json["token"])


def replayed(raw: bytes, sequence: int, **newer: Any) -> bytes:
    """A recorded report as sent in this minute, with what a later version adds."""
    told = json.loads(raw)
    moment = this_minute().isoformat()
    return json.dumps(told | {"at": moment, "minute": moment, "sequence": sequence, "usage": []} | newer).encode()


def send(server: RunningServer, token: str, raw: bytes) -> Reply:
    headers = {"Content-Type": "application/json"}
    return server.request("POST", "/api/v1/nodes/node-1/report", raw, token=token, headers=headers)


def state(server: RunningServer) -> dict[str, Any]:
    return dict(server.request("GET", "/api/v1/nodes/node-1/state").json)


def assign(server: RunningServer, generation: int) -> None:
    """A decision that uses all that assignments can say by now."""
    instances = (
        AssignedInstance("a", 0, "shop", "search", template="gpuwright-serve", args={"n": 1}, batch=Frame(8, 1, 16)),
        AssignedInstance("t", 1, "lab", job="finetune", preemptible=False, slo_ms=80, percentile=98, dedicated=True),
    )
    gpus = (AssignedGpu(0, Frame(1200, 900, 1400), 250),)

    def body(version: int) -> str:
        made = Assignment("node-1", version, 1, generation, 1, "p", instances, (), gpus, "strict", 60, 16, 2)
        return msgspec.json.encode(made).decode()

    database = Database(server.database_url, pool_size=1)
    drafts = [assignments.AssignmentDraft("node-1", generation, body)]
    assert database.write(lambda connection: assignments.write(connection, 1, drafts))
    database.close()


@pytest.mark.slow
def test_case_32_an_old_agent_joins_reports_and_is_told_what_it_can_read(server: RunningServer, token: str) -> None:
    reply = send(server, token, replayed(RECORDED_REPORT, 10))
    answer = msgspec.json.decode(reply.text, type=contract_1.Answer)
    assert (reply.status, answer.accepted, list(answer.dropped)) == (200, True, [])
    assert isinstance(answer.now, datetime)
    assert state(server)["copies"] == []
    assign(server, 1)
    polled = server.request("GET", "/api/v1/nodes/node-1/assignment?after=0&waitSeconds=10", token=token)
    told = msgspec.json.decode(polled.text, type=contract_1.Assignment)
    assert [(one.id, one.batch) for one in told.instances] == [("a", contract_1.Frame(8, 1, 16)), ("t", None)]
    assert (told.gpus[0].cap_w, told.contract, told.generation) == (250, 1, 1)


def test_case_32_an_agent_of_now_is_understood_whole(server: RunningServer, token: str) -> None:
    assert send(server, token, replayed(RECORDED_LATER_REPORT, 20)).status == 200
    said = state(server)
    assert [copy["stage"] for copy in said["copies"]] == ["warming", "ready"]
    assert (said["heldBack"][0]["reason"], said["repartition"]) == ("no_room_to_hand_over", [0])


def test_case_32_an_agent_of_the_next_version_is_understood_as_far_as_this_server_goes(
    server: RunningServer, token: str
) -> None:
    copies = [{"id": "a.1", "instance": "a", "gpu": 0, "stage": "hibernating", "nvlink": {"peers": [1, 2]}}]
    newer = {"contract": 2, "health": "dreaming", "copies": copies, "fromTheFuture": [{"deep": None}]}
    assert send(server, token, replayed(RECORDED_LATER_REPORT, 30, **newer)).status == 200
    said = state(server)
    assert (said["health"], [copy["stage"] for copy in said["copies"]]) == ("dreaming", ["hibernating"])


def test_case_32_an_agent_two_versions_ahead_is_told_which_this_server_speaks(
    server: RunningServer, token: str
) -> None:
    refused = send(server, token, replayed(RECORDED_LATER_REPORT, 40, contract=3))
    assert (refused.status, "this server understands contract version 1" in refused.json["detail"]) == (422, True)


def test_case_32_agents_of_both_versions_take_turns_on_one_node(server: RunningServer, token: str) -> None:
    """An upgrade, and going back: the state is what the newest report says, also when that says less."""
    for sequence, raw in enumerate((RECORDED_LATER_REPORT, RECORDED_REPORT, RECORDED_LATER_REPORT), start=50):
        told = json.loads(raw)
        assert send(server, token, replayed(raw, sequence, incarnation=1795190400)).status == 200
        assert len(state(server)["copies"]) == len(told.get("copies", ()))
