"""The node of `gpuwright up --cores`: this machine's CPU cores, declared, with a real agent behind a real gateway."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.exits import Failed
from cli.up.children import Children, Say
from cli.up.fleet import environment_of, free_port, start_planner, write_order

if TYPE_CHECKING:
    from app.settings import Settings
    from app.store.database.database import Database

NODE = "here"
GPU_TYPE = "cpu"
# These are made up: declare your own where money or energy on cores counts.
PRICE_PER_CORE_HOUR = 0.03
IDLE_W, MAX_W_PER_CORE = 0.0, 10.0


@dataclass(frozen=True, slots=True)
class CoresNode:
    """The cores that are offered, and the folder of the models that they may run."""

    cores: int
    models: Path
    allow_list: Path | None = None  # of users' own commands

    @property
    def spec(self) -> dict[str, Any]:
        memory_gib = _memory_gib()
        return {"gpuType": GPU_TYPE, "gpus": 1, "cpuCores": self.cores, "memoryGib": memory_gib}

    def documents(self) -> list[dict[str, Any]]:
        """Returns the manifests of the node: its pseudo GPU type, itself, and a policy that acts."""
        kind = {
            "memoryGib": _memory_gib(),
            "smCount": self.cores,
            "pricePerHour": PRICE_PER_CORE_HOUR * self.cores,
            "idleW": IDLE_W,
            "maxW": MAX_W_PER_CORE * self.cores,
            "clocksMhz": [_clock_mhz()],
        }
        return [
            _document("GpuType", GPU_TYPE, kind),
            _document("Node", NODE, self.spec),
            _document("Policy", "default", {"mode": "auto", "cycleSeconds": 5}),
        ]


def cores_node(cores: int | None, models: Path | None, allow_list: Path | None) -> CoresNode | None:
    """Returns the node that --cores asks for, None without it; raises Failed if no shares can be enforced here."""
    if cores is None:
        if models is not None:
            raise Failed("--models is for --cores: simulated GPUs run no models of yours")
        if allow_list is not None:
            raise Failed("--allow-list is for --cores: simulated GPUs run no commands of yours")
        return None
    from agents.devices.cores.device import usable_cores
    from agents.runtime.core_limits import NoCoreLimits, find_limits
    from simulation.real.part import haproxy_path

    if cores > usable_cores():
        raise Failed(f"--cores {cores}: this process may use {usable_cores()} cores")
    if haproxy_path() is None:
        raise Failed("--cores serves behind HAProxy, which is not installed (Debian: apt-get install haproxy)")
    try:
        find_limits()
    except NoCoreLimits as error:
        raise Failed(f"--cores {cores}: {error}") from error
    folder = (models or Path.cwd()).expanduser().resolve()
    if not folder.is_dir():
        raise Failed(f"--models {folder} is no folder")
    return CoresNode(cores, folder, _check(allow_list))


def _check(allow_list: Path | None) -> Path | None:
    """Returns the file's full path; raises Failed with each of its faults."""
    if allow_list is None:
        return None
    from agents.admission.reading import read_allow_list, user_fault
    from agents.templates.strict_file import FileRefused

    path = allow_list.expanduser().resolve()
    try:
        fault = user_fault(read_allow_list(path), under_mps=False)
    except FileRefused as error:
        raise Failed(str(error)) from error
    if fault:
        raise Failed(f"{path}: {fault}")
    return path


def declare_cores(database: Database, node: CoresNode) -> None:
    """Declares the node in an empty world; raises Failed if another one is declared there."""
    from app.manifests.model import Kind
    from simulation import world as worlds

    declared = database.read(worlds.read_store)
    nodes = {found.name: found.spec for found in declared.manifests.values() if found.kind is Kind.NODE}
    if not nodes:
        worlds.put(database, worlds.read_documents(node.documents()))
    elif set(nodes) != {NODE} or nodes[NODE].get("cpuCores") != node.cores:
        raise Failed("this data folder holds another fleet; name a new one with --data-dir")


@contextmanager
def running_cores(node: CoresNode, data_dir: Path, settings: Settings, server: str, say: Say) -> Iterator[str]:
    """Runs planner, agent and gateway while the block lasts; yields the gateway's address."""
    if not server.startswith("http:"):
        raise Failed("--cores talks to this server without TLS; leave out --tls-cert")
    environment, port = environment_of(settings), free_port()
    seams = ["--device", "cores", "--cores", str(node.cores), "--models", str(node.models)]
    seams += ["--allow-list", str(node.allow_list)] if node.allow_list else []
    order = write_order(data_dir, server, port, {"node": NODE, "spec": node.spec, "seams": seams, "load": []})
    children = Children(say)
    try:
        words = ["simulation.real.part", str(order)]
        children.start("the node", words, data_dir / "real.log", environment, at_our_death=signal.SIGTERM)
        start_planner(children, data_dir, environment)
        yield f"127.0.0.1:{port}"
    finally:
        children.stop()


def cores_screen(node: CoresNode, gateway: str) -> str:
    """Returns the lines about the node and the gateway."""
    return (
        f"  node      {NODE}: {node.cores} CPU core{'' if node.cores == 1 else 's'}, models from {node.models}\n"
        f"  gateway   http://{gateway}/TENANT/SERVICE/..."
    )


def _document(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "gpuwright/v1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)


def _clock_mhz() -> int:
    """Returns the cores' highest clock; where the kernel does not state it, the present one."""
    highest = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    try:
        return int(highest.read_text()) // 1000
    except (OSError, ValueError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return max([int(float(line.split(":")[1])) for line in lines if line.startswith("cpu MHz")], default=1000)
