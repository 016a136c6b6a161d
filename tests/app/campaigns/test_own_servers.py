"""A user's own server, which knows nothing of gpuwright, is measured on a node that admits it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.admission.test_own_server import declared_runtime, written
from tests.app.campaigns.running import ask, asked, settings_of
from tests.support.agents import AgentProcess
from tests.support.needs import need_cores
from tests.support.patience import until
from tests.support.server import RunningServer
from tests.support.world import model

WORK_MS = 20.0


def declare(server: RunningServer, runtime: dict[str, Any]) -> None:
    variants = [{"name": "plain", "accuracy": 1, "runtime": runtime}]
    assert server.request("POST", "/api/v1/apply", [model("words", variants=variants)]).status == 200


@pytest.mark.slow
def test_an_own_server_is_measured_with_the_request_of_its_manifest(api: RunningServer, tmp_path: Path) -> None:
    need_cores()
    runtime = declared_runtime(tmp_path)
    written(tmp_path, "allow-list.yaml")
    runtime["example"] = {"path": f"/count?text=the+quick+fox&seconds={WORK_MS / 1000}"}
    agent = AgentProcess(api, tmp_path / "agent", gpus=1)
    agent.start("--device", "cores", "--cores", "1", "--allow-list", str(tmp_path / "allow-list.yaml"))
    try:
        until(lambda: "admitted" in api.request("GET", "/api/v1/nodes/node-1").json["status"], "it says what it admits")
        effort = {"model": "words", "gpu": 0, "batches": None, "smPercents": [50, 100], "accuracy": 1.0}
        declare(api, {name: value for name, value in runtime.items() if name != "example"})
        assert "has no example, a request with which it is measured" in ask(api, **effort).json["detail"]
        declare(api, runtime | {"args": [*runtime["args"], "--reload"]})
        assert "node node-1 does not admit variant plain of Model words: args: " in ask(api, **effort).json["detail"]
        declare(api, runtime)
        ended = asked(api, **effort).until_ended(agent)
    finally:
        agent.end()
    assert ended["state"] == "done", ended["message"]
    assert sorted(settings_of(ended)) == [(1, 50.0), (1, 100.0)]
    for found in ended["measurements"]:
        assert found["latencyMs"] >= WORK_MS
        assert found["source"] == "client"
    (profile,) = ended["profiles"]
    assert profile["spec"]["latencyMs"]["1"]["100"]["mean"] >= WORK_MS
