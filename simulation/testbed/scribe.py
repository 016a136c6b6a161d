"""Writes to the control plane and remembers what was acknowledged, to check afterwards that nothing of it is lost.

A pool of objects, each written with a growing number. What is read back must be the last acknowledged number, or a
later one that was sent and whose answer was lost.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from agents.talk.link import Link, LinkError

OBJECTS = 20
PAUSE_SECONDS = 0.25
TIMEOUT_SECONDS = 5.0
LABEL = "written"


@dataclass
class Scribe:
    """One thread that writes until it is stopped."""

    server: str
    token: str
    acknowledged: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, name="scribe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def lost(self) -> list[str]:
        """Returns acknowledged writes that are missing; LinkError while no server answers."""
        link = Link(self.server, self.token)
        missing = []
        try:
            for name, least in self.acknowledged.items():
                read = json.loads(link.request("GET", f"/api/v1/models/{name}", None, TIMEOUT_SECONDS).body)
                found = int(read["metadata"]["labels"][LABEL])
                if not least <= found <= self.sent[name]:
                    missing.append(f"{name}: {least} was acknowledged, but {found} is stored")
        finally:
            link.close()
        return missing

    def _write(self) -> None:
        link = Link(self.server, self.token)
        number = 0
        while not self._ending.wait(PAUSE_SECONDS):
            number += 1
            name = f"scribe-{number % OBJECTS}"
            self.sent[name] = number
            try:
                link.request("POST", "/api/v1/apply", json.dumps([_model(name, number)]).encode(), TIMEOUT_SECONDS)
            except LinkError:
                self.refused += 1
            else:
                self.acknowledged[name] = number
                self.writes += 1
        link.close()


def _model(name: str, number: int) -> dict[str, Any]:
    """Returns a model that nothing serves, so that no plan changes by it."""
    return {
        "apiVersion": "gpuwright/v1",
        "kind": "Model",
        "metadata": {"name": name, "labels": {LABEL: str(number)}},
        "spec": {"variants": [{"name": "none", "accuracy": 0.5, "paramsM": 1}]},
    }
