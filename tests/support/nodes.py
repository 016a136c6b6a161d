"""Nodes for tests: a keeper and a watch over simulated GPUs in a process of their own, and real copies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.assignments import AssignedGpu, AssignedInstance, Assignment, Frame
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.machine import Machine as SimulatedMachine
from agents.devices.simulated.mps import SimulatedMps
from agents.devices.simulated.remote import Switches, connect, ensure_driver
from agents.gateway.followers import Followers
from agents.host import clocks
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import NodeDrivers
from agents.node.node import LocalNode
from agents.node.parts import NodeParts
from agents.node.state_folder import StateFolder
from agents.run.opening import NoGateway
from agents.runtime import CopyRuntime
from agents.runtime.process import ProcessRuntime
from agents.seams.routes import Routes
from agents.talk.copy_client import LOOPBACK, TcpCopyClient
from agents.templates.reading import read
from tests.support.patience import until

Date = Callable[[], datetime]
LATENCY = "1:10=2,100=1;8:10=4,100=2"


def served(name: str, gpu: int = 0, sm: float = 30, memory: float = 2.0, **fields: Any) -> AssignedInstance:
    """An instance of gpuwright-serve, small and quick."""
    known = AssignedInstance(
        name,
        gpu,
        "shop",
        name.partition("-")[0],
        model=name,
        template="gpuwright-serve",
        args={"model": "resnet", "latency": LATENCY},
        sm_percent=sm,
        memory_gib=memory,
        batch=Frame(4, 1, 8),
        rate_per_second=10.0,
        slo_ms=100.0,
        percentile=98.0,
    )
    return msgspec.structs.replace(known, **fields)


def assigned(generation: int, *instances: AssignedInstance, epoch: int = 1, **fields: Any) -> Assignment:
    gpus: Sequence[AssignedGpu] = fields.pop("gpus", ())
    return Assignment("node-1", generation, epoch, generation, instances=instances, gpus=tuple(gpus), **fields)


def around(folder: Path, routes: Routes | None = None, **fields: Any) -> NodeParts:
    """The seams of the machine in that folder, opened again."""
    device, mps = connect(folder / "driver")
    runtime: CopyRuntime = fields.pop("runtime", None) or ProcessRuntime(folder / "copies")
    own = folder / "templates"
    templates = read(own if own.exists() else None)
    if isinstance(routes, Followers):
        fields["followers"] = routes
    client = TcpCopyClient(fields.get("host", LOOPBACK))
    return NodeParts(NodeDrivers(device, mps, runtime, client), routes or NoGateway(), templates, **fields)


class Machine:
    """A folder with a simulated driver, on which one node after the other can be started."""

    def __init__(self, folder: Path, kinds: Sequence[str]) -> None:
        self.folder = folder
        self.driver = folder / "driver"
        ensure_driver(self.driver, kinds)
        self.switches = Switches(self.driver)

    def node(
        self,
        incarnation: int = 1,
        routes: Routes | None = None,
        heard: bool = True,
        date: Date = clocks.date,
        **parts: Any,
    ) -> LocalNode:
        seams = around(self.folder, routes, **parts)
        node = LocalNode(StateFolder(self.folder / "state"), seams, incarnation, date=date)
        node.set_contact(heard)
        return node

    def template(self, name: str, text: str) -> None:
        """A template of this node's own."""
        own = self.folder / "templates"
        own.mkdir(mode=0o755, exist_ok=True)
        (own / f"{name}.yaml").write_text(text)

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in connect(self.driver)[0].gpus()]

    def copies(self) -> list[int]:
        """The PIDs of every copy that runs, however it was started."""
        return [running.pid for running in ProcessRuntime(self.folder / "copies").find()]

    def close(self) -> None:
        runtime = ProcessRuntime(self.folder / "copies")
        for running in runtime.find():
            runtime.end(running, force=True)
        until(lambda: not runtime.find(), "the copies ended")
        self.switches.quit()
        self.switches.close()


@contextmanager
def machine(folder: Path, kinds: Sequence[str] = ("v100-16gb", "v100-16gb")) -> Iterator[Machine]:
    made = Machine(folder, kinds)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def running(made: Machine, **fields: Any) -> Iterator[LocalNode]:
    node = made.node(**fields)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def ready(node: LocalNode, *names: str) -> bool:
    """Whether exactly these instances run, each with one ready copy."""
    copies = node.keeper.copies()
    return sorted(copy.instance for copy in copies) == sorted(names) and all(
        copy.stage is Stage.READY for copy in copies
    )


def copy_of(node: LocalNode, name: str) -> NodeCopy:
    """The one copy of an instance."""
    (found,) = [copy for copy in node.keeper.copies() if copy.instance == name]
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def still_node(folder: StateFolder, incarnation: int) -> LocalNode:
    """A node on two simulated GPUs within this process, that nobody has started."""
    simulated = SimulatedMachine(["v100-16gb"] * 2)
    device = SimulatedDevice(simulated, lambda: 0.0)
    mps = SimulatedMps(simulated, lambda: 0.0, folder.path / "mps")
    drivers = NodeDrivers(device, mps, ProcessRuntime(folder.path / "copies"), TcpCopyClient())
    node = LocalNode(folder, NodeParts(drivers, NoGateway(), read()), incarnation, workers=0)
    node.watch.tick()
    return node
