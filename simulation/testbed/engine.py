"""The part of Docker's Engine API that chaos needs, over its socket, from the standard library."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
