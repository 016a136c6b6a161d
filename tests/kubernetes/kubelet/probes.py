"""Asks a container whether it has started, is ready or is alive, as its pod says: by HTTP, TCP or a command."""

from __future__ import annotations

import http.client
import socket
import subprocess
from contextlib import closing, suppress

from tests.kubernetes.kubelet.api import Resource
from tests.kubernetes.kubelet.runs import Run


class Probe:
    """One of a run; a new run gets a new one."""

    def __init__(self, spec: Resource, container: Resource, run: Run, address: str, holds: bool) -> None:
        self.holds = holds  # what counts until enough answers say otherwise
        self.failed = False  # as often in succession as its threshold
        self._spec, self._container, self._run, self._address = spec, container, run, address
        self._next = run.started + spec.get("initialDelaySeconds", 0)
        self._same = 0  # successes in succession; failures are counted below it

    def ask(self, now: float) -> None:
        """Asks, if it is time to."""
        if now < self._next:
            return
        self._next = now + self._spec.get("periodSeconds", 10)
        self._same = max(self._same, 0) + 1 if self._answers() else min(self._same, 0) - 1
        if self._same >= self._spec.get("successThreshold", 1):
            self.holds, self.failed = True, False
        elif -self._same >= self._spec.get("failureThreshold", 3):
            self.holds, self.failed = False, True

    def _answers(self) -> bool:
        seconds = self._spec.get("timeoutSeconds", 1)
        if "exec" in self._spec:
            asked = self._run.execute(self._spec["exec"]["command"])
            try:
                return asked.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                asked.kill()
                asked.wait()
        for kind in ("httpGet", "tcpSocket"):
            if kind in self._spec:
                with suppress(OSError, http.client.HTTPException):
                    return self._reach(self._spec[kind], kind == "httpGet", seconds)
        return False

    def _reach(self, wanted: Resource, by_http: bool, seconds: float) -> bool:
        host, port = wanted.get("host") or self._address, self._find_port(wanted["port"])
        if not by_http:
            socket.create_connection((host, port), seconds).close()
            return True
        headers = {header["name"]: header["value"] for header in wanted.get("httpHeaders", ())}
        with closing(http.client.HTTPConnection(host, port, timeout=seconds)) as connection:
            connection.request("GET", wanted.get("path", "/"), headers=headers)
            return 200 <= connection.getresponse().status < 400

    def _find_port(self, port: int | str) -> int:
        named = {one.get("name"): one["containerPort"] for one in self._container.get("ports", ())}
        return int(named.get(port, port))
