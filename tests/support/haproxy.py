"""A real HAProxy with its sidecar, and copies behind it that say who they are: started in a folder, on loopback."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agents.contract.paths import build_table, hash_rules
from agents.gateway.client import SidecarRoutes
from agents.gateway.desired import Desired
from agents.gateway.haproxy.configuration import render_base
from agents.gateway.haproxy.haproxy import Haproxy
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket
from agents.seams.routes import Acknowledged, Route, RoutesAway
from tests.support.forked import ROOT, find_python
from tests.support.needs import need
from tests.support.patience import patience, until
from tests.support.ports import free_port

PROGRAM = Path("/usr/sbin/haproxy")
ANY_PATH = ("* /**",)  # the rules of copies that answer whatever they are asked
ANY_KEY, ANY_TABLE = hash_rules(ANY_PATH), build_table([ANY_PATH])


class Gateway:
    """One HAProxy and one sidecar, each a process that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        need(PROGRAM, "haproxy")
        self.folder = folder
        self.port = free_port()
        self.requests = f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
        self.master = folder / "master.sock"
        self.listen = str(folder / "state" / "gateway.sock")
        self.state = folder / "state"
        self.log_path = folder / "gateway.log"
        self.state.mkdir(parents=True)
        text = render_base(self.state, self.requests, f"127.0.0.1:{self.port}")
        if os.geteuid():  # only root can become another user
            text = text.replace("    user haproxy\n    group haproxy\n", "")
        (folder / "haproxy.cfg").write_text(text)
        Haproxy(MasterSocket(self.master), self.state, self.requests).write(Desired())
        self.haproxy: subprocess.Popen[bytes] | None = None
        self.sidecar: subprocess.Popen[bytes] | None = None

    def start_haproxy(self) -> None:
        words = [str(PROGRAM), "-W", "-S", f"{self.master},mode,600"]
        words += ["-f", str(self.folder / "haproxy.cfg"), "-f", str(self.state / "gpuwright.cfg")]
        self.haproxy = self._launch(words)
        until(self._answers, f"haproxy does not answer, see {self.log_path}")

    def start_sidecar(self, *more: str, code: Path = ROOT) -> None:
        words = [find_python(code), "-m", "cli.main", "gateway", "run", "--folder", str(self.state)]
        self.sidecar = self._launch([*words, "--master", str(self.master), "--requests", self.requests, *more], code)

    def await_sidecar(self) -> None:
        """Until it answers, with HAProxy as desired."""

        def healthy() -> bool:
            assert self.sidecar and self.sidecar.poll() is None, f"it ended: {self.log_path.read_text()[-2000:]}"
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(self.listen)
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return connection.recv(1000).startswith(b"HTTP/1.1 200")
            return False

        until(healthy, f"the sidecar is not content, see {self.log_path}")

    def reload(self) -> None:
        """As systemctl reload does it; returns at once."""
        assert self.haproxy
        self.haproxy.send_signal(signal.SIGUSR2)

    def kill_sidecar(self) -> None:
        assert self.sidecar
        self.sidecar.kill()
        self.sidecar.wait()

    @contextmanager
    def paused_sidecar(self) -> Iterator[None]:
        """Pauses the sidecar; HAProxy continues with the routes that it has."""
        assert self.sidecar
        self.sidecar.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.sidecar.send_signal(signal.SIGCONT)

    def routes(self, source: str = "node-1") -> SidecarRoutes:
        return SidecarRoutes(self.listen, source)

    def ask(self, command: str) -> str:
        """The runtime command on the process that takes connections."""
        master = MasterSocket(self.master)
        return master.ask(command, master.workers()[0])

    def close(self) -> None:
        for process in (self.sidecar, self.haproxy):
            if process and process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _launch(self, words: list[str], code: Path = ROOT) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                words, cwd=code, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _answers(self) -> bool:
        assert self.haproxy and self.haproxy.poll() is None, f"haproxy ended: {self.log_path.read_text()[-2000:]}"
        try:
            MasterSocket(self.master).workers()
        except HaproxyAway:
            return False
        return True


def get(gateway: Gateway, path: str = "/shop/search/x", method: str = "GET") -> tuple[int, str, str]:
    """Status, body and Retry-After, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=patience())
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("retry-after", "")
    finally:
        connection.close()


def insist(routes: SidecarRoutes, declared: list[Route]) -> Acknowledged:
    """Say it until it is acknowledged: while HAProxy reloads, nobody may answer."""
    said: list[Acknowledged] = []

    def acknowledged() -> bool:
        with contextlib.suppress(RoutesAway):
            said.append(routes.declare(declared))
        return bool(said)

    until(acknowledged, "an acknowledgement")
    return said[0]


@contextmanager
def running_gateway(folder: Path) -> Iterator[Gateway]:
    """HAProxy and sidecar, ready; nothing of them is left afterwards."""
    gateway = Gateway(folder)
    try:
        gateway.start_haproxy()
        gateway.start_sidecar()
        gateway.await_sidecar()
        yield gateway
    finally:
        gateway.close()


class Copies:
    """Small servers in one process; each answers with its port, after `delay_ms`."""

    def __init__(self, ports: tuple[int, ...], process: subprocess.Popen[bytes], host: str = "127.0.0.1") -> None:
        self.ports, self.host = ports, host
        self.process = process

    def route(self, index: int, service: str = "shop/search", weight: int = 100, drained: bool = False) -> Route:
        return Route(f"copy-{index}", service, f"127.0.0.1:{self.ports[index]}", weight, drained, ANY_PATH)

    def requests(self, index: int) -> int:
        """How many this copy has had."""
        return int(self._ask(index, "/__count").split()[1])

    def release(self, index: int) -> None:
        """Lets the copy answer every request that ends with `?held`."""
        self._ask(index, "/__release")

    def end(self, index: int) -> None:
        """Ends the copy at once: whoever sends it a request from now on gets none answered."""
        self._ask(index, "/__end")

    def _ask(self, index: int, path: str) -> bytes:
        connection = http.client.HTTPConnection(self.host, self.ports[index], timeout=patience())
        connection.request("GET", path)
        answer = connection.getresponse().read()
        connection.close()
        return answer


@contextmanager
def running_copies(count: int, delay_ms: float = 2.0, host: str = "127.0.0.1") -> Iterator[Copies]:
    ports = tuple(free_port() for _ in range(count))
    words = [sys.executable, "-m", "tests.support.echo", str(delay_ms), host, *map(str, ports)]
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout and process.stdout.readline() == b"listening\n"
        yield Copies(ports, process, host)
    finally:
        process.kill()
        process.communicate()
