"""A real gpuwright-serve on a port of the kernel's choosing, ended when the test is."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agents.seams.traffic import Served
from agents.talk.scraping import read_served
from tests.support.patience import patience, until

PATH = "/v1/models/model:infer"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Copy:
    """The process, its port, and what it has printed."""

    process: subprocess.Popen[str]
    port: int
    log: list[str] = field(default_factory=list)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        timeout: float = 60.0,
        token: str = "",
        kind: str = "application/json",
    ) -> HttpAnswer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(
                method, path, body, {"Content-Type": kind} | ({"Authorization": f"Bearer {token}"} if token else {})
            )
            answer = connection.getresponse()
            return HttpAnswer(
                answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def infer(self, body: bytes = b"x") -> HttpAnswer:
        return self.ask("POST", PATH, body)

    def served(self) -> Served:
        served = read_served("gpuwright", self.ask("GET", "/metrics").body)
        assert served is not None
        return served

    def figure(self, name: str) -> float:
        found = re.search(rf"^gpuwright_serve_{name} (\S+)$", self.ask("GET", "/metrics").body.decode(), re.MULTILINE)
        assert found, name
        return float(found[1])

    def wait_ready(self, path: str = "/healthz") -> None:
        until(lambda: self.ask("GET", path).status == 200, "\n".join(self.log))

    def wait_figure(self, name: str, value: float) -> None:
        until(lambda: self.figure(name) == value, f"{name} is not {value}")

    def exit_code(self) -> int:
        return self.process.wait(patience())


@contextmanager
def serving(
    *words: str, environment: Mapping[str, str] | None = None, ready: bool = True, program: str = "serve"
) -> Iterator[Copy]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"agents.programs.{program}.main", *words],
        stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert process.stderr
    log: list[str] = []
    listening: Future[int] = Future()

    def read() -> None:
        assert process.stderr
        for line in process.stderr:
            log.append(line.rstrip())
            found = re.search(r"listening on [^ ]*:(\d+)", line)
            if found and not listening.done():
                listening.set_result(int(found[1]))
        if not listening.done():
            listening.set_exception(AssertionError("\n".join(log)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        copy = Copy(process, listening.result(patience()), log)
        if ready:
            copy.wait_ready("/healthz" if program == "serve" else "/health")
        yield copy
    finally:
        process.kill()
        process.wait()
        reader.join(patience())
        process.stderr.close()


@contextmanager
def clients(count: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(count) as pool:
        yield pool
