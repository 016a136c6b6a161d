"""A real agent process on simulated GPUs, joined to a real server, and assignments written as a leader writes them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from agents.contract.assignments import Assignment
from agents.control.join import join
from agents.devices.simulated.remote import Switches
from agents.node.state_folder import StateFolder
from agents.runtime.process import ProcessRuntime
from agents.seams.device import DeviceError
from app.store.database.database import Database
from app.store.fleet import assignments
from tests.support.forked import ROOT, find_python
from tests.support.patience import patience, until
from tests.support.server import Reply, RunningServer
from tests.support.world import gpu_type


class AskedServer(Protocol):
    """Where nodes join, asked as its admin."""

    @property
    def url(self) -> str: ...

    def request(self, method: str, path: str, body: object = None) -> Reply: ...


class AgentProcess:
    """`gpuwright agent run` in a folder of its own; it may be ended and started again."""

    def __init__(
        self, server: AskedServer, folder: Path, gpus: int = 2, node: str = "node-1", kind: str = "v100-16gb",
        gpu_type_name: str = "",
    ) -> None:  # fmt: skip
        self.server = server
        self.folder = folder
        self.gpus = gpus
        self.node = node
        self.kind = kind  # of its GPUs
        self.gpu_type = gpu_type_name or kind  # which must be declared
        self.more: tuple[str, ...] = ()  # options of each start
        self.log_path = folder.parent / f"{node}.log"
        self.code = ROOT  # of another version, where a test says so before a start
        self.environment = dict(os.environ)
        self.process: subprocess.Popen[bytes] | None = None
        assert server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
        self.join()

    def join(self) -> None:
        """Joins with a new join token; also again, after the node was deleted."""
        token = self.server.request("POST", "/api/v1/jointokens", {"node": self.node}).json["token"]
        spec = {"gpuType": self.gpu_type, "gpus": self.gpus, "cpuCores": 48, "memoryGib": 256}
        join(StateFolder(self.folder), self.server.url, token, self.node, spec)

    def command(self, *words: str) -> list[str]:
        return [find_python(self.code), "-m", "cli.main", "agent", *words, "--state-dir", str(self.folder)]

    def start(self, *words: str) -> None:
        seams = ["--device", "simulated", "--simulated-gpus", str(self.gpus), "--simulated-kind", self.kind]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command("run", *seams, *self.more, *words), cwd=self.code, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(how)
        return self.process.wait(timeout=patience())

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), cwd=self.code, capture_output=True, text=True, timeout=patience())

    def copies(self) -> list[str]:
        return sorted(running.copy for running in self.runtime.find())

    @property
    def runtime(self) -> ProcessRuntime:
        return ProcessRuntime(self.folder / "copies")

    def assign(self, database: Database, assignment: Assignment) -> None:
        """As a leader does it: the version is the database's."""

        def body(version: int) -> str:
            return msgspec.json.encode(msgspec.structs.replace(assignment, version=version)).decode()

        draft = assignments.AssignmentDraft(self.node, assignment.generation, body)
        taken = database.write(lambda connection: assignments.write(connection, assignment.epoch, [draft]))
        assert self.node in taken

    def said_log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for running in self.runtime.find():
            self.runtime.end(running, force=True)
        until(lambda: not self.runtime.find(), "the copies ended")
        self.end_driver()

    def end_driver(self) -> None:
        if (self.folder / "simulated").exists():
            switches = Switches(self.folder / "simulated")
            with suppress(DeviceError):  # a driver that has only just been started ends with its folder
                switches.quit()
            switches.close()


@contextmanager
def running_agent(server: RunningServer, folder: Path, gpus: int = 2, *words: str) -> Iterator[AgentProcess]:
    agent = AgentProcess(server, folder, gpus)
    try:
        agent.start(*words)
        yield agent
    finally:
        agent.close()


def resident_mib(pid: int) -> float:
    """What the process holds in memory."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """What the process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
