"""What jobs print is read through the server: a real agent, a real server, and only its own tenant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.contract.assignments import Assignment
from agents.contract.logs import LogWanted
from app.api.logs import MOST_WAITING_OF_TENANT
from app.store.database.database import Database
from app.store.fleet import log_requests
from tests.support.agents import AgentProcess, running_agent
from tests.support.forked import ROOT
from tests.support.patience import patience, until
from tests.support.server import RunningServer
from tests.support.trainers import program, trainer
from tests.support.world import job

PATH = "/api/v1/logs/jobs/lab/tune"
TEXT = """
import time
print("\\x1b[31mbegins\\x1b[0m")
for number in range(10000):
    print(f"step {number}", flush=True)
    time.sleep(0.2)
"""


def running_job(agent: AgentProcess, database: Database) -> None:
    """Assigns the job to the node, and waits until it runs."""
    agent.assign(database, Assignment(agent.node, 1, 1, 1, instances=(trainer(1, args=None),)))
    until(lambda: bool(agent.copies()), "the job runs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An operator's folder of templates, with the job's."""
    templates = tmp_path / "templates"
    templates.mkdir(mode=0o755)
    (templates / "trainer.yaml").write_text(program(tmp_path, TEXT))
    (tmp_path / "models").mkdir()
    return tmp_path


@pytest.mark.slow
def test_a_job_is_read_and_followed_by_its_tenant_and_by_nobody_else(api: RunningServer, folder: Path) -> None:
    words = ("--templates", str(folder / "templates"), "--models", str(folder / "models"))
    database = Database(api.database_url, pool_size=2, direct=True)
    with running_agent(api, folder / "agent", 1, *words) as agent:
        assert api.request("POST", "/api/v1/apply", [job("tune", "lab")]).status == 200
        assert api.request("GET", PATH).json["items"] == [], "it has not run yet"
        running_job(agent, database)
        own = api.token("viewer", tenant="lab")
        until(lambda: "step" in _text(api, own, PATH), "its output is read")
        first = api.request("GET", PATH, token=own).json
        (item,) = first["items"]
        assert item["text"].startswith("[31mbegins[0m\nstep 0\n"), "without control characters"
        assert (item["node"], item["instance"], item["answered"]) == (agent.node, "tune-1", True)
        more = api.request("GET", f"{PATH}?after={first['after']}&waitSeconds=10", token=own).json
        read = item["text"] + more["items"][0]["text"]
        assert read.splitlines()[1:] == [f"step {n}" for n in range(len(read.splitlines()) - 1)]
        other = api.token("viewer", tenant="shop")
        assert api.request("GET", PATH, token=other).status == 404
        assert api.request("GET", "/api/v1/logs/jobs/lab/none", token=own).status == 404
        assert api.request("GET", f"{PATH}?after=tune-1=/etc/passwd", token=own).status == 400
        for place in ("a%20b@5", "%1b[2J@5", "a,b@5", "a@" + "9" * 100):  # the node would refuse its whole assignment
            assert api.request("GET", f"{PATH}?after=tune-1={place}", token=own).status == 400
        lied = {"id": "x", "text": "y"}
        assert api.request("POST", f"/api/v1/nodes/{agent.node}/logs", lied, token=own).status == 403
        printed = _verb(api, "logs", "job", "lab/tune")
        assert "step 1" in printed
        (running,) = agent.runtime.find()
        os.kill(running.pid, signal.SIGKILL)
        until(lambda: _text(api, own, PATH).count("begins") == 2, "the output of the next process is read, too")
        assert "step 1\n" in _text(api, own, PATH).split("begins")[1], "what the killed process printed is kept"
        agent.end()
        silent = api.request("GET", PATH).json["items"]
        assert [item["answered"] for item in silent] == [False], "a node that is away is named"
        wanted = [(agent.node, LogWanted(f"x{number}", "tune-1")) for number in range(MOST_WAITING_OF_TENANT)]
        database.write(lambda connection: log_requests.ask(connection, "shop", wanted, 60))
        assert api.request("GET", PATH).status == 200, "readers of another tenant leave room"
        database.write(lambda connection: log_requests.remove(connection, [request.id for _, request in wanted]))
        database.write(lambda connection: log_requests.ask(connection, "lab", wanted, 60))
        refused = api.request("GET", PATH)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "too many logs of tenant lab" in refused.text
    database.close()


def _text(api: RunningServer, token: str, path: str) -> str:
    return "".join(item["text"] for item in api.request("GET", path, token=token).json["items"])


def _verb(api: RunningServer, *words: str) -> str:
    known = {**os.environ, "GPUWRIGHT_SERVER": api.url, "GPUWRIGHT_TOKEN": api.admin_token}
    command = [sys.executable, "-m", "cli.main", *words]
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    return done.stdout
