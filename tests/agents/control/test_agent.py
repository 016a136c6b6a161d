"""The agent against a real server: it joins, reports, follows its assignment, and remembers what it must."""

from __future__ import annotations

import random
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.contract.assignments import Assignment
from agents.control.agent import Agent
from agents.control.assignments import AssignmentVerdict, begin_incarnation, judge_assignment
from agents.control.join import join
from agents.host import clocks
from agents.node.state_folder import AgentMemory, Credential, StateFolder
from agents.talk.link import Link, LinkError
from app.store.database.database import Database
from tests.support.nodes import still_node
from tests.support.reports import decide
from tests.support.server import RunningServer
from tests.support.world import gpu_type

SPEC = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}


@pytest.fixture
def joined(api: RunningServer, tmp_path: Path) -> Credential:
    assert api.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    return join(StateFolder(tmp_path), api.url, token, "node-1", SPEC)


def agent_of(folder: Path, credential: Credential, date: Callable[[], datetime] = clocks.date) -> Agent:
    """An agent on two simulated GPUs of its own, in this process and at a standstill."""
    place = StateFolder(folder)
    memory = begin_incarnation(place, date())
    return Agent(place, credential, still_node(place, memory.incarnation), memory, date)


def link_of(credential: Credential) -> Link:
    return Link(credential.server, credential.token)


def assignment(epoch: int, generation: int, version: int = 1) -> Assignment:
    return Assignment("node-1", version, epoch, generation)


@pytest.mark.slow
def test_joining_declares_the_node_and_keeps_the_credential_to_itself(
    api: RunningServer, joined: Credential, tmp_path: Path
) -> None:
    assert api.request("GET", "/api/v1/nodes/node-1").json["spec"] == SPEC
    assert StateFolder(tmp_path).credential() == joined
    assert stat.S_IMODE((tmp_path / "credential.json").stat().st_mode) == 0o600


@pytest.mark.slow
def test_case_24_a_one_time_token_joins_once(api: RunningServer, tmp_path: Path) -> None:
    api.request("POST", "/api/v1/apply", [gpu_type()])
    token = api.request("POST", "/api/v1/jointokens", {}).json["token"]
    join(StateFolder(tmp_path / "a"), api.url, token, "node-1", SPEC)
    with pytest.raises(LinkError) as caught:
        join(StateFolder(tmp_path / "b"), api.url, token, "node-2", SPEC)
    assert caught.value.status == 409
    assert StateFolder(tmp_path / "b").credential() is None


@pytest.mark.slow
def test_a_report_tells_state_and_inventory(api: RunningServer, joined: Credential, tmp_path: Path) -> None:
    agent = agent_of(tmp_path, joined)
    assert agent.report_once(link_of(joined)).accepted
    state = api.request("GET", "/api/v1/nodes/node-1/telemetry").json["state"]
    assert state["health"] == "ok"
    first, second = state["inventory"]["gpus"]
    assert (first["index"], second["index"]) == (0, 1)
    assert first["uuid"].startswith("GPU-")
    assert first["uuid"] != second["uuid"]
    assert "gpuwright-serve" in state["inventory"]["templates"]


@pytest.mark.slow
def test_an_assignment_arrives_and_survives_a_restart(joined: Credential, tmp_path: Path, database: Database) -> None:
    agent = agent_of(tmp_path, joined)
    link = link_of(joined)
    assert agent.poll_once(link, 0) is None
    decide(database, 1, 1, "node-1")
    assert agent.poll_once(link, 10) is AssignmentVerdict.TAKE
    assert agent.poll_once(link, 0) is None
    agent.close()
    restarted = agent_of(tmp_path, joined)
    assert restarted.assignment == agent.assignment
    assert restarted.poll_once(link, 0) is None


@pytest.mark.slow
def test_an_assignment_that_could_not_be_kept_is_asked_for_again(
    joined: Credential, tmp_path: Path, database: Database
) -> None:
    agent, link = agent_of(tmp_path, joined), link_of(joined)
    decide(database, 1, 1, "node-1")
    (tmp_path / "memory.json.new").mkdir()  # stands in for a full disk: nothing can be written there, by root either
    with pytest.raises(OSError, match=r"memory\.json"):
        agent.poll_once(link, 0)
    assert agent.assignment is None
    (tmp_path / "memory.json.new").rmdir()
    assert agent.poll_once(link, 0) is AssignmentVerdict.TAKE
    assert agent.assignment is not None


@pytest.mark.slow
def test_an_agent_that_lost_its_memory_starts_above_what_is_known(
    api: RunningServer, joined: Credential, tmp_path: Path
) -> None:
    early = datetime(2026, 1, 1, tzinfo=UTC)
    agent_of(tmp_path, joined).report_once(link_of(joined))
    forgetful = agent_of(tmp_path / "new", joined, lambda: early)
    link = link_of(joined)
    first = forgetful.report_once(link)
    assert first.dropped[0].reason == "superseded"
    assert not [drop for drop in forgetful.report_once(link).dropped if drop.what == "state"]


@pytest.mark.parametrize(
    ("memory", "offered", "verdict"),
    [
        (AgentMemory(), assignment(1, 1), AssignmentVerdict.TAKE),
        (AgentMemory(epoch=1, generation=1, assignment=assignment(1, 1)), assignment(1, 2), AssignmentVerdict.TAKE),
        (AgentMemory(epoch=1, generation=9, assignment=assignment(1, 9)), assignment(2, 1), AssignmentVerdict.TAKE),
        (AgentMemory(epoch=1, generation=2, assignment=assignment(1, 2)), assignment(1, 2), AssignmentVerdict.SAME),
        (AgentMemory(epoch=1, generation=2, assignment=assignment(1, 2)), assignment(1, 1), AssignmentVerdict.STALE),
        (AgentMemory(epoch=2, generation=1, assignment=assignment(2, 1)), assignment(1, 9), AssignmentVerdict.STALE),
    ],
)
def test_case_10_only_newer_assignments_are_taken(
    memory: AgentMemory, offered: Assignment, verdict: AssignmentVerdict
) -> None:
    assert judge_assignment(memory, offered) is verdict


def test_case_10_stale_assignments_are_refused_and_counted(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, Credential("http://127.0.0.1:9", "node-1", "t"))
    offers = [assignment(2, 5), assignment(2, 5), assignment(1, 6), assignment(2, 4)]
    assert [agent.offer(offered) for offered in offers] == [
        AssignmentVerdict.TAKE,
        AssignmentVerdict.SAME,
        AssignmentVerdict.STALE,
        AssignmentVerdict.STALE,
    ]
    assert agent.assignment == offers[0]
    assert agent.stale == 2


def test_case_10_the_newest_decision_wins_in_any_order(tmp_path: Path) -> None:
    """Each twice, late, and shuffled: the final state is the same, and late decisions are counted."""
    rng = random.Random(5)
    decisions = [assignment(epoch, generation) for epoch in (1, 2) for generation in (1, 2, 3)]
    for number in range(20):
        memory, stale = AgentMemory(), 0
        for offered in rng.sample(decisions * 2, len(decisions) * 2):
            verdict = judge_assignment(memory, offered)
            stale += verdict is AssignmentVerdict.STALE
            if verdict is AssignmentVerdict.TAKE:
                assert (offered.epoch, offered.generation) > (memory.epoch, memory.generation)
                memory = AgentMemory(number, offered.epoch, offered.generation, offered)
            assert (offered.epoch, offered.generation) <= (memory.epoch, memory.generation)
        assert (memory.assignment, stale > 0) == (assignment(2, 3), True)


def test_case_18_an_incarnation_grows_although_the_clock_went_back(tmp_path: Path) -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    first = begin_incarnation(StateFolder(tmp_path), now).incarnation
    assert begin_incarnation(StateFolder(tmp_path), now - timedelta(days=30)).incarnation == first + 1


def test_a_missing_server_is_reported_as_such() -> None:
    with pytest.raises(LinkError, match="did not answer"):
        Link("http://127.0.0.1:9").request("GET", "/healthz")


@pytest.mark.slow
def test_case_24_a_revoked_credential_is_reported(api: RunningServer, joined: Credential, tmp_path: Path) -> None:
    listed = api.request("GET", "/api/v1/tokens").json["items"]
    (own,) = [token["id"] for token in listed if token.get("node") == "node-1"]
    assert api.request("DELETE", f"/api/v1/tokens/{own}").status == 200
    with pytest.raises(LinkError) as caught:
        agent_of(tmp_path, joined).report_once(link_of(joined))
    assert caught.value.status == 401
