"""A process that holds simulated GPUs in real time, as a driver holds real ones: its users may die and return.

`python -m agents.devices.simulated.driver FOLDER --gpus 4 --kind v100-16gb` serves FOLDER/driver.sock for devices, MPS
and fault switches (`agents.devices.simulated.remote`), and FOLDER/mps/UUID/device.sock for clients of each MPS daemon.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import sys
import uuid as uuids
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agents.devices.simulated.connections import CONTROL, LOCK
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.kinds import KINDS
from agents.devices.simulated.loop import Loop
from agents.devices.simulated.machine import Machine
from agents.devices.simulated.mps import SimulatedMps
from agents.devices.simulated.peer import BACKLOG_CONNECTIONS, Peer
from agents.devices.simulated.pipe import Pipe
from agents.devices.simulated.refusals import CudaRefusal
from agents.devices.simulated.speeds import LoadSpeeds
from agents.host.wire import listen
from agents.seams.device import DeviceError

LONGEST_REQUEST_BYTES = 65536
MACHINE_ID = "machine-id"
MOST_CONNECTIONS = 64
LOOK_SECONDS = 30.0
DEVICE = ("gpus", "read", "processes", "lock_clock", "cap_power", "exclusive", "restore")
MPS = ("start", "stop", "state", "clients", "terminate", "environment", "folders")
SWITCHES = (
    "age", "ecc", "events_since", "give_back", "hang", "heat", "how_many_writes", "load_driver", "lose", "mps_defaults",
    "mps_dies", "mps_faults", "mps_hangs", "mps_max_clients", "mps_of_another", "mps_slow", "mps_startable",
    "mps_terminates",
    "open_outside", "preset", "reads_fail", "reload_driver", "setters", "slow", "slow_down", "stale_pid", "truth",
    "unsupported", "vacate", "xid",
)  # fmt: skip


class Driver:
    """The machine and its connections."""

    def __init__(self, folder: Path, machine: Machine, loop: Loop) -> None:
        self._machine = machine
        self._loop = loop
        self._owed: list[float] = []  # seconds that the current call takes
        self._device = SimulatedDevice(machine, loop.clock, self._owed.append)
        self._mps = SimulatedMps(machine, loop.clock, folder / "mps", self._owed.append)
        self._peers: set[Peer] = set()
        self._pipes = {uuid: Pipe(folder / "mps" / uuid, uuid, machine, loop) for uuid in machine.slots}
        machine.pid_exists = lambda pid: Path(f"/proc/{pid}").exists()
        self._listener = listen(folder / CONTROL, BACKLOG_CONNECTIONS)
        loop.welcome(self._listener, self._meet)

    def close(self) -> None:
        for pipe in self._pipes.values():
            pipe.close()
        self._listener.close()

    def _meet(self, connection: socket.socket) -> None:
        if len(self._peers) >= MOST_CONNECTIONS:
            connection.close()
            return
        peer = Peer(connection, LONGEST_REQUEST_BYTES, lambda line: self._answer(peer, line), lambda: self._gone(peer))
        self._peers.add(peer)
        self._loop.attend(peer)

    def _gone(self, peer: Peer) -> None:
        self._loop.forget(peer.connection)
        self._peers.discard(peer)

    def _answer(self, peer: Peer, line: bytes) -> None:
        self._owed.clear()
        try:
            answer: dict[str, Any] = {"value": self._call(line)}
        except DeviceError as error:
            answer = {"trouble": error.trouble, "uuid": error.uuid, "what": error.what}
        except CudaRefusal as refused:
            answer = {"refused": refused.code, "what": refused.message}
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            answer = {"trouble": "garbled", "uuid": "", "what": f"{type(error).__name__}: {error}"[:500]}
        message = msgspec.json.encode(answer, enc_hook=str)
        for pipe in self._pipes.values():
            pipe.follow()
        if self._owed:
            self._loop.after(sum(self._owed), lambda: peer.say(message))
        else:
            peer.say(message)

    def _call(self, line: bytes) -> Any:
        words = json.loads(line)
        to, name, arguments = words["to"], words["call"], words["arguments"]
        self._machine.advance(self._loop.clock())
        called: Callable[..., Any]
        if to == "driver" and name == "quit":
            self._loop.running = False
            return os.getpid()
        for known, allowed, owner in (
            ("device", DEVICE, self._device),
            ("mps", MPS, self._mps),
            ("machine", SWITCHES, self._machine),
        ):
            if to == known and name in allowed:
                called = getattr(owner, name)
                return called(*arguments)
        raise ValueError(f"{to} has no call {name}")


def _machine_id(folder: Path) -> str:
    """Returns the name that makes the machine's UUIDs; it moves with the folder, as boards move with a machine."""
    path = folder / MACHINE_ID
    with contextlib.suppress(FileNotFoundError):
        if known := path.read_text().strip():
            return known
    made = uuids.uuid4().hex
    path.write_text(f"{made}\n")
    return made


def _end_with(folder: Path, loop: Loop) -> None:
    """Ends a driver whose folder was deleted, since no one can reach it any more."""
    if (folder / LOCK).exists():
        loop.after(LOOK_SECONDS, lambda: _end_with(folder, loop))
    else:
        loop.running = False


def serve(folder: Path, kinds: list[str], speeds: LoadSpeeds | None = None) -> int:
    """Serves until a quit call; returns 3 when another driver serves this folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = folder.resolve()
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 3
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
        loop = Loop()
        _end_with(folder, loop)
        machine = Machine(kinds, name=_machine_id(folder), now=loop.clock())
        machine.speeds = speeds
        driver = Driver(folder, machine, loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(0))
        try:
            loop.run()
        finally:
            driver.close()
            (folder / CONTROL).unlink(missing_ok=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m agents.devices.simulated.driver", description="Simulated GPUs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=1, metavar="N")
    parser.add_argument("--kind", default="v100-16gb", choices=sorted(KINDS))
    parser.add_argument("--spec", type=Path, help='a JSON file: {"gpus": ["v100-16gb", "a100-40gb"]}')
    given = parser.parse_args()
    kinds = json.loads(given.spec.read_text())["gpus"] if given.spec else [given.kind] * given.gpus
    return serve(given.folder, kinds)


if __name__ == "__main__":
    sys.exit(main())
