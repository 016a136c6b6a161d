"""The fleet that the tour visits: one `gpuwright up`, and the agents of three nodes on simulated GPUs."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.gateways import EndpointCopy
from tests.support.agents import AgentProcess
from tests.support.contract import check_answer
from tests.support.forked import ROOT, Forked, gpuwright
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.server import Reply
from tests.tour.world import BASE, NODES, Document

START_SECONDS = 300.0  # guards against hanging
REQUEST_SECONDS = 120.0
LOOK_SHARE = 0.2  # of the time that was waited already, until the next look
LOOK_SECONDS = (0.1, 1.0)  # at least, and at most
HANG_SECONDS = 50.0  # less than a test may take, so that it says what hangs


class TourFleet:
    """What a person has in front of them: the command line, the API, and the machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.agents: dict[str, AgentProcess] = {}
        self._screen, self._errors = folder / "screen.txt", folder / "errors.txt"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWRIGHT_", "DATABASE_"))}
        self.environment = kept | {
            "GPUWRIGHT_CONFIG": str(folder / "config.json"), "GPUWRIGHT_SOLVE_SECONDS": "0.05",
            "GPUWRIGHT_ANSWERS_READY": "0", "GPUWRIGHT_RATE_BURST": "100000", "GPUWRIGHT_RATE_PER_SECOND": "1000",
        }  # fmt: skip
        self._screen.touch()
        self._errors.touch()
        words = ["up", "--empty", "--data-dir", str(self.data), "--port", str(self.port)]
        self.process = Forked(words, ROOT, self.environment, self._screen, self._errors)

    # What is asked of the server.

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, headers: Document | None = None
    ) -> Reply:
        """One request, as the admin unless a token (or "" for none) is given.

        Its answer must be as the API's document says.
        """
        sent = {str(name): str(value) for name, value in (headers or {}).items()}
        token = self.admin_token if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)
        finally:
            connection.close()
        check_answer(method, path, reply.status, reply.headers.get("content-type", ""), text)
        return reply

    def get(self, path: str) -> Any:
        reply = self.request("GET", f"/api/v1/{path}")
        assert reply.status == 200, reply.text
        return reply.json

    def cli(self, *words: str, code: int = 0) -> str:
        """Runs `gpuwright WORDS` on this fleet; returns what it says, errors too."""
        done = gpuwright(*words, environment=self.environment, folder=self.folder)
        assert done.returncode == code, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @property
    def admin_token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    @property
    def screen(self) -> str:
        return self._screen.read_text()

    @property
    def database_url(self) -> str:
        """Of its own Postgres, as libpq spells it."""
        (address,) = [line.split()[1] for line in self.screen.splitlines() if line.strip().startswith("database")]
        password = (self.data / "postgres.password").read_text().strip()
        host, _, name = address.rpartition("/")
        return f"postgresql://gpuwright:{password}@{host}/{name}"

    # What is declared, planned and served.

    @contextmanager
    def declared(self, *documents: Document) -> Iterator[None]:
        """Objects of a test's own, which are gone afterwards."""
        reply = self.request("POST", "/api/v1/apply", list(documents))
        assert reply.status == 200, reply.text
        try:
            yield
        finally:
            for document in reversed(documents):
                name = document["metadata"]["name"]
                tenant = document["metadata"].get("tenant")
                path = f"{document['kind'].lower()}s/{f'{tenant}/' if tenant else ''}{name}"
                gone = self.request("DELETE", f"/api/v1/{path}")
                assert gone.status == 200, gone.text

    def current(self) -> dict[str, Any]:
        """Returns the plan in force; empty before the first."""
        reply = self.request("GET", "/api/v1/plans/current")
        found: dict[str, Any] = reply.json if reply.status == 200 else {}
        return found

    def settled(self) -> int:
        """Waits until nothing is being rolled out; returns the generation of the plan in force."""
        self.until(lambda: self.current().get("state") == "done", "the rollout is over")
        return int(self.current()["generation"])

    def planned(self, service: str) -> list[dict[str, Any]]:
        """Returns its instances in the newest plan that has any: a quick step names those of its own services alone."""
        for row in self.get("plans")["items"]:
            if row["state"] != "proposed":
                plan = self.get(f"plans/{row['generation']}")
                if found := [one for one in plan["instances"] if one["service"] == service]:
                    return found
        return []

    def sm_percent(self, service: str) -> float:
        """Returns the SM% that is planned for all its instances."""
        return float(sum(one["smPercent"] for one in self.planned(service)))

    def proposed(self) -> list[int]:
        """Returns the plans that wait for approval."""
        return [plan["generation"] for plan in self.get("plans")["items"] if plan["state"] == "proposed"]

    def phase(self, job: str) -> str:
        return str(self.get(f"jobs/{job}").get("status", {}).get("phase", ""))

    def steps(self, job: str) -> float:
        return float(self.get(f"jobs/{job}").get("status", {}).get("stepsDone", 0))

    def reasons(self) -> set[str]:
        """Returns the reasons of the events until now."""
        return {event["reason"] for event in self.get("events?limit=500")["items"]}

    def copies(self, service: str) -> list[EndpointCopy]:
        """Returns the copies that serve it, as gateways are told."""
        reply = self.request("GET", f"/api/v1/endpoints?service={service}")
        found = reply.json.get("services", ()) if reply.status == 200 else ()
        return [
            msgspec.convert(copy, EndpointCopy) for one in found for copy in one.get("copies", ())
            if not copy.get("drained") and copy.get("address")
        ]  # fmt: skip

    def nodes_of(self, service: str) -> set[str]:
        return {copy.node for copy in self.copies(service)}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for a state; if it never comes, says what the fleet looks like."""

        began = time.monotonic()

        def looked() -> bool:
            found = holds()
            if not found:  # each look is a request or more, which the fleet has to answer
                soonest, latest = LOOK_SECONDS
                time.sleep(min(max(LOOK_SHARE * (time.monotonic() - began), soonest), latest))
            return found

        try:
            until(looked, what, HANG_SECONDS)
        except AssertionError as hung:
            raise AssertionError(f"{hung}; {self.told()}") from None

    def told(self) -> str:
        """Returns the last events, what is planned and the ends of the logs, for who has to find a fault."""
        events = [
            f"{event['reason']} {event.get('object', '')}: {event['message']}"
            for event in self.get("events?limit=15")["items"]
        ]
        logs = [path.read_text()[-1500:] for path in (self.data / "planner.log", self._errors) if path.exists()]
        plan = {name: self.current().get(name) for name in ("generation", "state", "lane")}
        return "\n".join([str(plan), *events, *logs, *(agent.said_log()[-500:] for agent in self.agents.values())])

    # What runs.

    def await_ready(self) -> None:
        until(lambda: "Ctrl-C" in self.screen or self.process.poll() is not None, "up is ready", START_SECONDS)
        assert self.process.poll() is None, self._errors.read_text()

    def await_agent(self, node: str) -> None:
        self.until(lambda: self.is_reporting(node), f"node {node} reports")

    def is_reporting(self, node: str) -> bool:
        conditions = self.get(f"nodes/{node}").get("status", {}).get("conditions", ())
        return any(one["type"] == "Reporting" and one["status"] == "True" for one in conditions)

    def start_agent(self, node: str, kind: str) -> None:
        """Joins a node of one simulated GPU, and starts its agent."""
        models = self.folder / f"{node}-files" / "models"
        models.mkdir(parents=True)
        (models.parent / "checkpoints").mkdir()
        agent = AgentProcess(self, self.folder / node, 1, node, kind)
        self.agents[node] = agent
        agent.start("--models", str(models))

    def kill_node(self, node: str) -> None:
        """The machine is gone: its agent, and all that it has started."""
        agent = self.agents[node]
        assert agent.process
        agent.process.kill()
        agent.process.wait()
        for running in agent.runtime.find():
            agent.runtime.end(running, force=True)

    def revive_node(self, node: str) -> None:
        """Its agent starts again, and the node reports."""
        self.agents[node].start("--models", str(self.folder / f"{node}-files" / "models"))
        self.await_agent(node)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def running_fleet(folder: Path) -> Iterator[TourFleet]:
    """A fleet whose nodes report and whose service is served."""
    fleet = TourFleet(folder)
    try:
        fleet.await_ready()
        reply = fleet.request("POST", "/api/v1/apply", BASE)
        assert reply.status == 200, reply.text
        for node, kind in NODES.items():
            fleet.start_agent(node, kind)
        for node in NODES:
            fleet.await_agent(node)
        fleet.until(lambda: bool(fleet.copies("shop/search")), "shop/search is served")
        yield fleet
    finally:
        fleet.close()
