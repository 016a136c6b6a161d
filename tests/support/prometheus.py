"""A real Prometheus that scrapes every second, and evaluates the expressions of our alerts over what it has seen."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.support.needs import need
from tests.support.patience import patience, until
from tests.support.ports import free_port

STEP_SECONDS = 1


class Prometheus:
    """The process over the metrics at these ports of this machine, asked over its API."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self._program = need("prometheus", "prometheus")
        self._folder = folder
        self._ports = ports
        self._address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self._address}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns once it scrapes all of them."""
        targets = [{"targets": [f"127.0.0.1:{port}" for port in self._ports]}]
        every = {"scrape_interval": f"{STEP_SECONDS}s", "scrape_timeout": f"{STEP_SECONDS}s"}
        written = {"global": every, "scrape_configs": [{"job_name": "gpuwright", "static_configs": targets}]}
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(written))
        words = [f"--config.file={self._folder}/prometheus.yml", f"--storage.tsdb.path={self._folder}/prometheus"]
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, *words, f"--web.listen-address={self._address}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until(self._scrapes, f"Prometheus does not scrape, see {self._folder}/prometheus.log")

    def query(self, expression: str, start: float, end: float) -> list[float]:
        """Returns the moments from `start` to `end`, a second apart, at which the expression was true."""
        asked = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": STEP_SECONDS})
        found = self._ask(f"query_range?{asked}")["result"]
        return sorted({float(at) for series in found for at, _ in series["values"]})

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _scrapes(self) -> bool:
        with suppress(OSError):
            targets = self._ask("targets")["activeTargets"]
            return bool(targets) and all(target["health"] == "up" for target in targets)
        return False

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=patience()) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]
