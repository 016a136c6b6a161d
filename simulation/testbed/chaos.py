"""Kills or freezes a part of the testbed every few seconds, brings it back, and reports the outcome at the end.

Usage: python -m simulation.testbed.chaos [--minutes M] [--seed N]

Exits with 1 if an acknowledged write is lost, or a part is not healthy again, and with 2 if Docker does not answer,
before anything is struck. Access to Docker is root access to the machine: use this on a testbed only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agents.talk.link import LinkError
from simulation.testbed.scribe import Scribe

SOCKET = Path("/run/docker.sock")
ADMIN = Path("/keys/admin/admin.token")
SERVER = os.environ.get("GPUWRIGHT_SERVER", "http://api:8080")
ALIVE = Path("/tmp/alive")  # noqa: S108
NODES = ("v100-1", "v100-2", "l4-1", "l4-2", "t4-1", "t4-2")
# One of a pair at a time; parts without a twin are struck as often, since their absence is what is tested.
PARTS = ("api-1", "api-2", "desk", "planner-1", "planner-2", "gateway", "haproxy", "postgres", *NODES)
DOWN_SECONDS = (1.0, 8.0)
BETWEEN_SECONDS = (4.0, 12.0)
BACK_SECONDS = 180.0


def strike(engine: Engine, part: str, rng: random.Random) -> str:
    """Takes one part away for a few seconds."""
    container, state = engine.states()[part]
    if state != "running":
        engine.do(container, "start")
        return f"start {part}"
    blow, mend = rng.choice([("kill", "start"), ("kill", "start"), ("pause", "unpause")])
    seconds = rng.uniform(*DOWN_SECONDS)
    engine.do(container, blow)
    time.sleep(seconds)
    engine.do(container, mend)
    return f"{blow} {part} for {seconds:.1f} s"


def mend(engine: Engine) -> None:
    """Starts every part that may have been struck, also after a chaos that was killed."""
    for part, (container, state) in engine.states().items():
        if part in PARTS and state == "paused":
            engine.do(container, "unpause")
        elif part in PARTS and state != "running":
            engine.do(container, "start")


def list_unhealthy(engine: Engine) -> list[str]:
    states = engine.states()
    return [part for part in PARTS if states[part][1] != "running" or not engine.healthy(states[part][0])]


def await_recovery(engine: Engine, scribe: Scribe) -> tuple[list[str], list[str]]:
    """Returns what is still unhealthy and what is lost, once all is well or the time is up."""
    until = time.monotonic() + BACK_SECONDS
    lost = ["no server answered"]
    while True:
        ALIVE.touch()
        unwell = list_unhealthy(engine)
        try:
            lost = scribe.lost()
        except LinkError as error:
            lost = [str(error)]
        if (not unwell and not lost) or time.monotonic() > until:
            return unwell, lost
        time.sleep(1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rng = random.Random(args.seed)  # noqa: S311
    engine = Engine(SOCKET, os.environ.get("COMPOSE_PROJECT_NAME", "gpuwright"))
    try:
        engine.states()
    except EngineError as error:
        say(f"nothing was struck: {error}; DOCKER_SOCKET names Docker's socket, DOCKER_GID the group that may open it")
        return 2
    scribe = Scribe(SERVER, ADMIN.read_text().strip())
    blows: Counter[str] = Counter()
    scribe.start()
    end = time.monotonic() + 60 * args.minutes
    try:
        while time.monotonic() < end:
            part = rng.choice(PARTS)
            try:
                say(strike(engine, part, rng))
                blows[part] += 1
            except EngineError as error:
                say(f"{part}: {error}")
            ALIVE.touch()
            time.sleep(rng.uniform(*BETWEEN_SECONDS))
    finally:
        scribe.end()
        mend(engine)
    began = time.monotonic()
    unwell, lost = await_recovery(engine, scribe)
    say(f"{blows.total()} blows: " + ", ".join(f"{part} {count}" for part, count in blows.most_common()))
    say(f"{scribe.writes} writes acknowledged, {scribe.refused} not; lost: {'; '.join(lost) or 'none'}")
    say(f"not healthy after {time.monotonic() - began:.0f} s: {', '.join(unwell) or 'none'}")
    return int(bool(unwell or lost))


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


TIMEOUT_SECONDS = 60.0


class EngineError(Exception):
    """The engine refused, or did not answer."""


class _Local(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


class Engine:
    """Containers of one project, by the name of their service."""

    def __init__(self, path: Path, project: str) -> None:
        self._path, self._project = path, project

    def states(self) -> dict[str, tuple[str, str]]:
        """Returns the id and state, such as `running`, of each service."""
        labels = {"label": [f"com.docker.compose.project={self._project}", "com.docker.compose.oneoff=False"]}
        found = self._ask("GET", f"/containers/json?all=1&filters={quote(json.dumps(labels))}")
        return {
            container["Labels"]["com.docker.compose.service"]: (container["Id"], container["State"])
            for container in found
        }

    def healthy(self, container: str) -> bool:
        return bool(
            self._ask("GET", f"/containers/{container}/json")["State"].get("Health", {}).get("Status") == "healthy"
        )

    def do(self, container: str, verb: str) -> None:
        """Sends kill, start, pause or unpause; a container already in that state is no error."""
        self._ask("POST", f"/containers/{container}/{verb}")

    def _ask(self, method: str, path: str) -> Any:
        connection = _Local(self._path)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{self._path}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 400 and answer.status not in (304, 409):
            raise EngineError(f"{method} {path}: {answer.status} {body[:200].decode(errors='replace')}")
        return json.loads(body) if body else None


if __name__ == "__main__":
    sys.exit(main())
