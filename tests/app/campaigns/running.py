"""A model that a node can start, a campaign that measures it, and what a test asks about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.agents import AgentProcess
from tests.support.patience import until
from tests.support.server import Reply, RunningServer
from tests.support.world import model

# Batches that take long: a busy machine adds little to them, and a copy asked without a pause answers few of them.
LATENCY = {1: {10: 24.0, 30: 12.0, 100: 8.0}, 4: {10: 48.0, 30: 24.0, 100: 16.0}}
MEMORY_GIB = 1.5
QUICK = {"batches": [1, 4], "smPercents": [10, 30, 100], "leastSeconds": 0.1, "accuracy": 0.1}


def declare_model(server: RunningServer, name: str = "tiny", **args: Any) -> None:
    """A model of the stub, with one variant."""
    words = ";".join(f"{batch}:{','.join(f'{sm}={ms}' for sm, ms in row.items())}" for batch, row in LATENCY.items())
    runtime = {"template": "gpuwright-serve", "args": {"model": name, "latency": words, "claimGib": MEMORY_GIB} | args}
    variants = [{"name": "fp16", "accuracy": 0.7, "runtime": runtime}]
    assert server.request("POST", "/api/v1/apply", [model(name, variants=variants)]).status == 200


def ask(server: RunningServer, **fields: Any) -> Reply:
    return server.request("POST", "/api/v1/campaigns", {"model": "tiny", "node": "node-1"} | QUICK | fields)


@dataclass(frozen=True, slots=True)
class Asked:
    """A campaign that was asked for."""

    server: RunningServer
    id: str

    def read(self) -> dict[str, Any]:
        reply = self.server.request("GET", f"/api/v1/campaigns/{self.id}")
        assert reply.status == 200, reply.text
        found: dict[str, Any] = reply.json
        return found

    def count(self) -> int:
        return len(self.read()["measurements"])

    def until_ended(self, agent: AgentProcess) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def ended() -> bool:
            found.update(self.read())
            return found["endedAt"] is not None

        try:
            until(ended)
        except AssertionError:
            raise AssertionError(f"{found}\n{agent.said_log()[-3000:]}") from None
        return found


def asked(server: RunningServer, **fields: Any) -> Asked:
    reply = ask(server, **fields)
    assert reply.status == 201, reply.text
    return Asked(server, reply.json["id"])


def settings_of(campaign: dict[str, Any]) -> list[tuple[int, float]]:
    """The settings that were measured, in their order."""
    return [(found["setting"]["batch"], found["setting"]["smPercent"]) for found in campaign["measurements"]]
