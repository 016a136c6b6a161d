"""Copies as containers, started by this machine's Docker Engine through its own library.

A container is limited like a process: it runs as the agent's user (MPS serves only one), cannot gain privileges,
and has no capability and a read-only root. It shares the host's network, because it listens on loopback like any
copy, and the host's IPC, because MPS needs one /dev/shm. Images are never pulled: a missing one is an error. A user
who may talk to the Engine is root on its machine, and that includes such an agent.

Whether a copy lives is read from /proc, as for processes: forty copies cost no request to the Engine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from agents.admission.metadata import OWN_BRIDGE
from agents.host.clocks import boot_id
from agents.runtime import Launch, LaunchError, Running, proc
from agents.runtime.logs import strip_controls, whole_lines
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE
from agents.templates import Filled

_COPY, _FOLDER = "gpuwright.copy", "gpuwright.folder"
_ENGINE_SECONDS = 60.0
_MOST_PIDS = 8192
# Kernel compilers load from there what they have just built: hence exec.
_SCRATCH = {"/tmp": "rw,nosuid,nodev,exec,mode=1777,size=4g", "/run": "rw,nosuid,nodev,mode=1777,size=64m"}  # noqa: S108  inside
# Its user need not be known to the image, whose root it cannot write to: caches go to the scratch.
_HOME = {"HOME": "/tmp", "USER": "gpuwright"}  # noqa: S108  inside
_LOG = {"max-size": "1m", "max-file": "2"}
_TAIL_LINES = 50
_MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_BRIDGE_NAME = "com.docker.network.bridge.name"
_GONE = (404, 409)  # no such container; not running


class EngineAway(LaunchError):
    """The Docker Engine does not answer, or its answer makes no sense."""


class DockerRuntime:
    """Containers that belong to one folder, as processes do. `gpus` is off where there is no device to pass through."""

    def __init__(
        self, folder: Path, address: str = "unix:///var/run/docker.sock", user: str = "", gpus: bool = True
    ) -> None:
        self._folder = str(folder.resolve())
        self._address = address
        self._user = user or f"{os.geteuid()}:{os.getegid()}"
        self._gpus = gpus
        self._boot_id = boot_id()
        self._lock = Lock()
        self._opened: Any = None

    def start(self, launch: Launch) -> Running:
        if not launch.filled.image:
            raise LaunchError(f"{launch.copy}: template {launch.filled.template} names no image")
        with self._engine(launch.copy) as engine:
            name = self._name(launch.copy)
            known = self._inspect(engine, name)
            if known is not None and known["State"]["Running"]:
                return self._running(known)
            if known is not None:  # of a start that was interrupted
                engine.remove_container(name, force=True, v=True)
            if launch.filled.confined is not None:
                with self._lock:
                    _make_own_network(engine)
            engine.create_container_from_config(self._config(engine, launch), name)
            try:
                engine.start(name)
            except BaseException:
                _unless_gone(lambda: engine.remove_container(name, force=True, v=True))
                raise
            return self._running(engine.inspect_container(name))

    def find(self) -> tuple[Running, ...]:
        with self._engine() as engine:
            inspected = (self._inspect(engine, container["Id"]) for container in self._ours(engine, all=False))
            found = [
                self._running(container)
                for container in inspected
                if container is not None and container["State"]["Running"]
            ]
        return tuple(running for running in found if running.pid)

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Nothing starts a copy but the agent."""

    def find_called_away(self) -> dict[str, float]:
        return {}  # nobody ends them but the agent

    def announce(self, running: Running) -> None:
        """Nobody waits for it but the agent."""

    def alive(self, running: Running) -> bool:
        if running.boot_id != self._boot_id or not running.pid:
            return False
        process = proc.read_process(running.pid)
        return process is not None and process.start_ticks == running.start_ticks and not process.zombie

    def stopped(self, running: Running) -> bool:
        """Looks at the children of the first process: that is the Engine's own, which passes signals on."""
        children = proc.list_children(running.pid) if self.alive(running) else ()
        return any(child.stopped for child in map(proc.read_process, children) if child is not None)

    def pids(self, running: Running) -> frozenset[int]:
        """Returns the PIDs of its PID namespace, where orphans go to the first process, with which all end."""
        return frozenset(proc.descendants(running.pid)) if self.alive(running) else frozenset()

    def end(self, running: Running, force: bool) -> None:
        self.tell(running, "SIGKILL" if force else "SIGTERM")

    def tell(self, running: Running, signal_name: str) -> None:
        if running.container and self.alive(running):
            with self._engine(running.copy) as engine:
                _unless_gone(lambda: engine.kill(running.container, signal=signal_name))

    def run_beside(self, running: Running, filled: Filled, seconds: float) -> bool:
        return False  # templates with an image have no such command: a container is not entered

    def exit_code(self, running: Running) -> int | None:
        with self._engine(running.copy) as engine:
            found = self._inspect(engine, self._name(running.copy))
            return None if found is None or found["State"]["Running"] else int(found["State"]["ExitCode"]) & 0xFF

    def log_tail(self, copy: str) -> str:
        try:
            with self._engine(copy) as engine:
                return strip_controls(engine.logs(self._name(copy), tail=_TAIL_LINES))
        except LaunchError:
            return ""

    def read_log(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        try:
            with self._engine(copy) as engine:
                whole: bytes = engine.logs(self._name(copy))  # the Engine keeps two files of a mebibyte
        except LaunchError:
            return b"", offset or 0
        begins = max(0, len(whole) - most_bytes) if offset is None else offset if offset <= len(whole) else 0
        part = whole_lines(whole[begins : begins + most_bytes], most_bytes)
        return part, begins + len(part)

    def tidy(self, copies: Collection[str]) -> None:
        """Removes containers that have ended, with their logs; the Engine bounds the others."""
        with self._engine() as engine:
            for container in self._ours(engine, all=True):
                if container["State"] != "running" and container["Labels"].get(_COPY) not in copies:
                    _unless_gone(lambda container=container: engine.remove_container(container["Id"], v=True))  # type: ignore[misc]

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _config(self, engine: Any, launch: Launch) -> Any:
        """Returns a container's configuration. A user's own image gets a network of its own, and one port published."""
        from docker.types import DeviceRequest, LogConfig, Ulimit

        confined, argv = launch.filled.confined, launch.filled.argv or ("",)
        own = set(launch.filled.folders) if confined else set()
        device = DeviceRequest(device_ids=launch.gpu.split(","), capabilities=[["gpu"]])
        is_on_host = confined is None or launch.limits.get(_MPS_PIPES) in launch.folders  # MPS: one /dev/shm
        port = confined.port if confined and launch.port else None
        host = engine.create_host_config(
            binds=[folder if folder in own else _bound(folder) for folder in launch.folders],
            cap_drop=["ALL"],
            device_requests=[device] if launch.gpu and self._gpus else None,
            init=True,  # the kernel withholds SIGTERM from a first process that does not handle it
            ipc_mode="host" if is_on_host else "private",
            log_config=LogConfig(type="json-file", config=_LOG),
            network_mode=OWN_BRIDGE if confined else "host",
            oom_score_adj=launch.oom_score,
            pids_limit=_MOST_PIDS,
            port_bindings={port: (confined.host, launch.port)} if confined and port else None,
            read_only=True,
            security_opt=["no-new-privileges"],  # and the Engine's own filter of system calls
            tmpfs=_SCRATCH,
            ulimits=[Ulimit(name="core", soft=0, hard=0)],
        )
        marks = {"GPUWRIGHT_COPY": launch.copy, "GPUWRIGHT_FOLDER": self._folder}
        if launch.gpu and (self._gpus or not confined):
            marks[VISIBLE_DEVICES_VARIABLE] = launch.gpu
        given = dict(launch.filled.environment) | (dict(confined.secrets) if confined else {})
        config = engine.create_container_config(
            image=launch.filled.image,
            command=list(launch.filled.argv if confined else argv[1:]),
            environment=({} if confined else _HOME) | given | marks | dict(launch.limits),
            host_config=host,
            labels={_COPY: launch.copy, _FOLDER: self._folder},
            ports=[port] if port else None,
            user=f"{confined.user}:{confined.user}" if confined and confined.user is not None else self._user,
        )
        if not confined:
            config["Entrypoint"] = [argv[0]]  # the template says what runs, not the image
        return config

    def _name(self, copy: str) -> str:
        """Names each copy's container uniquely: the Engine refuses a second start of the same copy."""
        return "gpuwright-" + hashlib.sha256(f"{self._folder}\0{copy}".encode()).hexdigest()[:32]

    def _running(self, inspected: Any) -> Running:
        pid = int(inspected["State"]["Pid"])
        process = proc.read_process(pid) if pid else None
        copy = inspected["Config"]["Labels"][_COPY]
        if process is None or process.zombie:  # it has ended, and the Engine may not know it yet
            return Running(copy, 0, 0, self._boot_id, inspected["Id"])
        return Running(copy, pid, process.start_ticks, self._boot_id, inspected["Id"])

    def _ours(self, engine: Any, all: bool) -> list[Any]:  # noqa: A002  the Engine's word
        found: list[Any] = engine.containers(all=all, filters={"label": f"{_FOLDER}={self._folder}"})
        return found

    def _inspect(self, engine: Any, name: str) -> Any:
        """Returns None when there is no such container."""
        return _unless_gone(lambda: engine.inspect_container(name))

    @contextmanager
    def _engine(self, copy: str = "the Docker Engine") -> Iterator[Any]:
        """Returns the Engine's own client; its exceptions become ours."""
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException

        try:
            yield self._client()
        except APIError as error:
            raise LaunchError(f"{copy}: {error.explanation or error}") from error
        except (DockerException, RequestException, OSError, KeyError, TypeError, ValueError) as error:
            raise EngineAway(f"{copy}: the Docker Engine at {self._address} does not answer: {error}") from error

    def _client(self) -> Any:
        from docker import APIClient

        with self._lock:
            if self._opened is None:
                self._opened = APIClient(base_url=self._address, version="auto", timeout=_ENGINE_SECONDS)
            return self._opened


def _make_own_network(engine: Any) -> None:
    """Makes the network of users' own images, unless the Engine has it; raises where its bridge has another name."""
    for network in engine.networks(names=[OWN_BRIDGE]):
        if network["Name"] == OWN_BRIDGE:
            bridge = (network["Options"] or {}).get(_BRIDGE_NAME)
            if bridge != OWN_BRIDGE:
                raise LaunchError(f"the Engine's network {OWN_BRIDGE} has the bridge {bridge}; remove that network")
            return
    engine.create_network(OWN_BRIDGE, driver="bridge", options={_BRIDGE_NAME: OWN_BRIDGE}, check_duplicate=True)


def _bound(folder: str) -> str:
    """Returns the mount to the same path inside. `:ro` at its end: read-only."""
    path, colon, mode = folder.rpartition(":")
    return f"{path}:{path}:ro" if colon and mode == "ro" else f"{folder}:{folder}:rw"


def _unless_gone(ask: Callable[[], Any]) -> Any:
    """Returns the answer; None where the container has already gone or ended, which is the aim."""
    from docker.errors import APIError

    try:
        return ask()
    except APIError as error:
        if error.status_code not in _GONE:
            raise
        return None
