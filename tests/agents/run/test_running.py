"""`gpuwright agent run` against a real server: what is assigned there runs here, across stops and restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.store.database.database import Database
from tests.support.agents import AgentProcess, running_agent
from tests.support.forked import ROOT
from tests.support.nodes import assigned, served
from tests.support.patience import patience, until
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


@pytest.fixture
def agent(api: RunningServer, tmp_path: Path) -> Iterator[AgentProcess]:
    with running_agent(api, tmp_path / "agent") as started:
        yield started


def status(agent: AgentProcess) -> dict[str, Any]:
    status_call = agent.ask("status", "--json")
    return json.loads(status_call.stdout) if status_call.returncode == 0 else {}


def stages(agent: AgentProcess) -> dict[str, str]:
    return {copy["instance"]: copy["stage"] for copy in status(agent).get("copies", [])}


def test_what_is_assigned_runs_and_is_reported(agent: AgentProcess, api: RunningServer, database: Database) -> None:
    agent.assign(database, assigned(1, served("search-1"), served("images-1", gpu=1)))
    until(lambda: stages(agent) == {"search-1": "ready", "images-1": "ready"}, agent.said_log())

    def reported() -> bool:
        state = api.request("GET", "/api/v1/nodes/node-1/state").json
        return [copy["stage"] for copy in state.get("copies", [])] == ["ready", "ready"]

    until(reported, "the control plane knows")
    status_text = agent.ask("status").stdout
    assert "generation 1.1" in status_text
    assert "images-1." in status_text
    drained = agent.ask("drain", "--gpu", "1")
    assert drained.returncode == 0
    until(lambda: stages(agent) == {"search-1": "ready"}, "GPU 1 is empty")
    assert agent.ask("drain", "--gpu", "1", "--undo").returncode == 0
    until(lambda: stages(agent) == {"search-1": "ready", "images-1": "ready"}, "GPU 1 is used again")
    assert agent.ask("drain", "--gpu", "7").returncode != 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_ends_leaves_what_runs(agent: AgentProcess, database: Database, how: signal.Signals) -> None:
    agent.assign(database, assigned(1, served("search-1")))
    until(lambda: stages(agent) == {"search-1": "ready"}, "it is ready")
    before = agent.copies()
    assert agent.end(how) == (0 if how is signal.SIGTERM else -9)
    assert agent.copies() == before
    agent.assign(database, assigned(2, served("search-1"), served("images-1", gpu=1)))
    agent.start()
    until(lambda: stages(agent) == {"search-1": "ready", "images-1": "ready"}, "it goes on")
    assert before[0] in agent.copies()


def test_copies_without_a_journal_serve_on_and_strangers_are_named(agent: AgentProcess, database: Database) -> None:
    agent.assign(database, assigned(1, served("search-1"), served("images-1", gpu=1)))
    until(lambda: stages(agent) == {"search-1": "ready", "images-1": "ready"}, "both are ready")
    before = agent.copies()
    agent.end()
    (agent.folder / "journal.jsonl").write_text("rubbish\n{}\n")
    agent.start()
    assert agent.process is not None
    assert agent.process.wait(timeout=patience()) != 0
    assert "move the file away and run `gpuwright agent adopt`" in agent.said_log()
    (agent.folder / "journal.jsonl").unlink()
    memory = json.loads((agent.folder / "memory.json").read_text())
    memory["assignment"]["instances"] = [
        instance for instance in memory["assignment"]["instances"] if instance["id"] == "search-1"
    ]
    (agent.folder / "memory.json").write_text(json.dumps(memory))
    agent.start()
    (kept, stranger) = sorted(before, reverse=True)
    until(lambda: status(agent).get("strangers") == [stranger], "what is not assigned is named")
    until(lambda: stages(agent) == {"search-1": "ready"}, "what is assigned is taken in")
    assert agent.copies() == sorted(before)
    assert "is being ended" in agent.ask("adopt", "--end").stdout
    until(lambda: agent.copies() == [kept], "the stranger is gone")


def test_a_second_agent_on_the_folder_is_refused(agent: AgentProcess) -> None:
    until(lambda: bool(status(agent)), "it answers")
    other = agent.ask("run", "--device", "simulated")
    assert other.returncode != 0
    assert "another agent already uses" in other.stderr


def test_questions_to_an_agent_that_is_not_there_say_so(tmp_path: Path, api: RunningServer) -> None:
    agent = AgentProcess(api, tmp_path / "agent")
    status_call = agent.ask("status")
    assert status_call.returncode != 0
    assert "is `gpuwright agent run` up?" in status_call.stderr


def test_a_node_that_was_deleted_and_joined_again_continues_without_a_restart(
    agent: AgentProcess, api: RunningServer
) -> None:
    until(lambda: bool(status(agent)) and status(agent)["silentSeconds"] is not None, "it reports")
    assert api.request("DELETE", "/api/v1/nodes/node-1").status in (200, 204)
    until(lambda: "401" in status(agent)["trouble"], "status says why it is not heard")
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    words = ["--node", "node-1", "--gpu-type", "v100-16gb", "--gpus", "2"]
    environment = {**os.environ, "GPUWRIGHT_JOIN_TOKEN": token}
    command = agent.command("join", "--server", api.url, *words)
    assert subprocess.run(command, cwd=ROOT, env=environment, timeout=patience()).returncode == 0

    def known() -> bool:
        telemetry = api.request("GET", "/api/v1/nodes/node-1/telemetry").json
        return bool((telemetry.get("state") or {}).get("inventory"))

    until(known, "it reports again, all that it has included")
    until(lambda: status(agent)["trouble"] == "", "status says so")


def test_what_the_reclaim_file_says_is_a_notice_until_the_file_is_gone(api: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "reclaim"
    file.write_text("soon")
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)

    def notices() -> list[Any]:
        items = api.request("GET", "/api/v1/cordons?node=node-1").json["items"]
        return [datetime.fromisoformat(item["deadline"]) for item in items if item["mode"] == "reclaim"]

    with running_agent(api, tmp_path / "agent", 2, "--reclaim-file", str(file)) as agent:
        until(lambda: "says nothing about a reclaim of this node: 'soon'" in agent.said_log(), agent.said_log())
        assert notices() == []
        file.write_text(json.dumps({"action": "terminate", "time": deadline.isoformat()}))
        until(lambda: notices() == [deadline], "the control plane knows")
        assert f"the cloud takes this node back at {deadline.isoformat()}" in agent.ask("status").stdout
        file.unlink()
        until(lambda: notices() == [], "it is withdrawn")
