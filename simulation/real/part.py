"""The real part of `gpuwright up`: HAProxy, its sidecar, an agent, model servers, requests.

Usage: python -m simulation.real.part ORDER.json

Everything runs on loopback as children of this process, and ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agents.admission.reading import read_allow_list
from agents.control.join import join
from agents.devices.simulated.remote import Switches, connect
from agents.gateway.desired import Desired
from agents.gateway.haproxy.configuration import render_base
from agents.gateway.haproxy.haproxy import Haproxy
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket
from agents.node.state_folder import StateFolder
from agents.runtime.cgroups import Cgroups
from agents.runtime.core_groups import CoreGroups
from agents.runtime.core_limits import find_limits
from agents.runtime.process import ProcessRuntime
from agents.seams.device import DeviceError
from agents.talk.link import Link, LinkError
from agents.templates.strict_file import FileRefused
from simulation.real.ending import bind_command, end_process

PROGRAMS = ("/usr/sbin/haproxy", "/usr/bin/haproxy", "/usr/local/sbin/haproxy")
END_SECONDS = 15.0
PATIENCE_SECONDS = 15.0  # for what starts
LAST_LINES = 3  # of a log, that say why a process ended
GATEWAY = "up"
WEEK_SECONDS = 7 * 86400


class NotStarted(Exception):
    """A process of the real part does not run; its message says what it wrote last."""


class RealSetup(msgspec.Struct):
    """The setup to run."""

    server: str
    token_file: str  # of an admin
    folder: str  # for the agent's files and the logs
    port: int  # of the gateway
    node: str
    spec: dict[str, Any]  # the node's, as declared
    seams: list[str]  # of the agent: its devices
    load: list[str]  # as simulation.real.load_generator takes them
    driver: dict[str, Any] | None = None  # the truth of its GPUs, as simulation.truth_driver takes it; None: none


def haproxy_path() -> str | None:
    """Returns the path of the installed program."""
    return shutil.which("haproxy") or next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)


@dataclass
class RealPart:
    """The running processes, in the order of their start."""

    order: RealSetup
    sockets: Path  # a short path, because HAProxy's master socket must fit into 108 characters
    running: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)
    joined: str = ""  # the Node's uid: a node that is deleted and declared again is another one

    def start(self, program: str) -> None:
        state = self.sockets / "gateway"
        state.mkdir()
        master, requests = self.sockets / "master.sock", f"127.0.0.1:{_free_datagram_port()}"
        text = render_base(state, requests, f"127.0.0.1:{self.order.port}")
        if os.geteuid():  # only root can become another user
            text = text.replace("    user haproxy\n    group haproxy\n", "")
        (self.sockets / "haproxy.cfg").write_text(text)
        Haproxy(MasterSocket(master), state, requests).write(Desired())
        parts = ["-f", str(self.sockets / "haproxy.cfg"), "-f", str(state / "gpuwright.cfg")]
        self._run("haproxy", [program, "-W", "-S", f"{master},mode,600", *parts])
        _await(lambda: _answers(MasterSocket(master)) or self._has_ended("haproxy"), "HAProxy does not answer")
        if self._has_ended("haproxy"):
            raise NotStarted(f"HAProxy ended; it says: {self.last_words('haproxy')}")
        words = ["gateway", "run", "--folder", str(state), "--master", str(master), "--requests", requests]
        words += ["--server", self.order.server, "--server-token-file", str(self.renew_token()), "--name", GATEWAY]
        words += ["--loopback"]
        self._run("gateway", [*OURSELVES, *words])
        _await((state / "gateway.sock").exists, "the sidecar does not answer")
        self.join()
        if self.order.driver:
            self._drive(self.order.driver)
        models = self._folder / "models"
        for folder in (models, models.parent / "checkpoints"):  # where gpuwright-train saves
            folder.mkdir(parents=True, exist_ok=True)
        seams = ["--models", str(models), *self.order.seams, "--gateway", str(state / "gateway.sock")]
        self._run("agent", [*OURSELVES, "agent", "run", "--state-dir", str(self._folder), *seams])
        if self.order.load:
            words = [sys.executable, "-m", "simulation.real.load_generator", f"127.0.0.1:{self.order.port}"]
            self._run("requests", [*words, *self.order.load])

    def _drive(self, truth: dict[str, Any]) -> None:
        """Starts the driver of GPUs with a truth of their own, before the agent starts one that has none."""
        folder = self._folder / "simulated"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        spec = folder / "truth.json"
        spec.write_text(json.dumps(truth))
        self._run("driver", [sys.executable, "-m", "simulation.truth_driver", str(folder), "--spec", str(spec)])
        _await(lambda: _has_gpus(folder), "the simulated GPUs do not answer")

    def _has_ended(self, name: str) -> bool:
        return any(known == name and process.poll() is not None for known, process in self.running)

    def last_words(self, name: str) -> str:
        """Returns the end of what a process wrote, on one line."""
        log = Path(self.order.folder) / f"{name}.log"
        lines = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        return " | ".join(lines) or f"nothing; see {log}"

    def fallen(self) -> str:
        """Returns the process that exited on its own; empty while all run."""
        return next((name for name, process in self.running if process.poll() is not None), "")

    def stop(self) -> None:
        """Stops the requests first and the gateway last, then ends the model copies."""
        for name, process in reversed(self.running):
            end_process(process, END_SECONDS)
            if name == "agent":
                self.end_copies()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def end_copies(self) -> None:
        """Ends the agent's copies, which outlive the agent by design, but not this fleet."""
        runtime = ProcessRuntime(self._folder / "copies", self._groups(), users=self._users())
        until = time.monotonic() + END_SECONDS
        force = False
        while (running := runtime.find()) and time.monotonic() < until:
            for copy in running:
                runtime.end(copy, force=force)
            time.sleep(0.2)
            force = time.monotonic() > until - END_SECONDS / 2
        runtime.tidy(())
        with contextlib.suppress(DeviceError, OSError):
            Switches(self._folder / "simulated").quit()

    def _users(self) -> tuple[int, ...]:
        """Returns the user that commands of the node's allow-list run as; empty where it names none."""
        seams = self.order.seams
        if "--allow-list" not in seams:
            return ()
        with contextlib.suppress(FileRefused):
            user = read_allow_list(Path(seams[seams.index("--allow-list") + 1])).user
            return () if user is None else (user,)
        return ()

    def _groups(self) -> bool | Cgroups:
        """Returns the groups that limit copies on CPU cores, so that they are removed, too."""
        if "cores" not in self.order.seams:
            return True
        return CoreGroups((self._folder / "copies").resolve(), find_limits())

    def rejoin(self) -> None:
        """Joins again if the node was deleted and is declared again, as its token was revoked."""
        with contextlib.suppress(LinkError):
            uid = self._uid()
            if uid and uid != self.joined:
                self.join()

    def join(self) -> None:
        made = self._ask("POST", "/api/v1/jointokens", {"node": self.order.node})
        fields = ("gpuType", "gpus", "cpuCores", "memoryGib")
        spec = {name: self.order.spec[name] for name in fields}
        join(StateFolder(self._folder), self.order.server, made["token"], self.order.node, spec)
        self.joined = self._uid()

    def _uid(self) -> str:
        """Returns the uid of the Node; empty while it is not declared."""
        try:
            found: dict[str, Any] = self._ask("GET", f"/api/v1/nodes/{self.order.node}")["metadata"]
        except LinkError as error:
            if error.status == 404:
                return ""
            raise
        return str(found["uid"])

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request as admin."""
        link = Link(self.order.server, Path(self.order.token_file).read_text().strip())
        try:
            content = None if body is None else msgspec.json.encode(body)
            made: dict[str, Any] = json.loads(link.request(method, path, content).body)
        finally:
            link.close()
        return made

    def renew_token(self) -> Path:
        """Returns the file of the gateway's token, which expires within a week; each start revokes the last one."""
        request = {"scope": "gateway", "gateway": GATEWAY, "label": "gpuwright up", "expiresInSeconds": WEEK_SECONDS}
        path = Path(self.order.folder) / "gateway.token"
        with contextlib.suppress(OSError, IndexError, LinkError):
            self._ask("DELETE", f"/api/v1/tokens/{path.read_text().split('_')[1]}")
        path.touch(mode=0o600)
        path.write_text(str(self._ask("POST", "/api/v1/tokens", request)["token"]))
        return path

    @property
    def _folder(self) -> Path:
        return Path(self.order.folder) / self.order.node

    def _run(self, name: str, command: Sequence[str]) -> None:
        with (Path(self.order.folder) / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(bind_command([*command]), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running.append((name, process))


OURSELVES = (sys.executable, "-m", "cli.main")


def _answers(master: MasterSocket) -> bool:
    try:
        master.workers()
    except HaproxyAway:
        return False
    return True


def _has_gpus(folder: Path) -> bool:
    device, _ = connect(folder)
    try:
        return bool(device.gpus())
    except DeviceError:
        return False
    finally:
        device.close()


def _await(true: Any, otherwise: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > until:
            raise NotStarted(f"{otherwise} within {PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


def _free_datagram_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RealSetup)
    program = haproxy_path()
    if program is None:
        sys.exit("haproxy is not installed")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    Path(order.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    sockets = Path(tempfile.mkdtemp(prefix="gpuwright-up-"))
    sockets.chmod(0o755)  # HAProxy reads its maps there as a separate user
    real = RealPart(order, sockets)
    try:
        real.end_copies()  # left by an earlier run that was killed
        real.start(program)
        while not stopped.wait(1.0):
            fallen = real.fallen()
            if fallen:
                raise NotStarted(f"{fallen} exited; it says: {real.last_words(fallen)}")
            real.rejoin()
    except NotStarted as failure:
        print(failure, file=sys.stderr)  # noqa: T201  its log is what it prints
        return 1
    finally:
        real.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
