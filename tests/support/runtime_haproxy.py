"""HAProxy's master and runtime sockets without HAProxy: processes, servers, maps and loads, as its manual says.

Tests set what no real one does on demand: a process that ends amid a command, an answer of another kind, a full queue.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agents.gateway.haproxy import changes
from agents.gateway.haproxy.configuration import GENERATED, MAPS, SERVICES

COLUMNS = "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port"
SERVER = re.compile(r"(\S+) \[?([^]\s]+?)\]?:(\d+) weight (\d+) maxconn (\d+) .*")
STATES = {"ready": 0, "drain": 8, "maint": 1}
GONE = "Can't find the target PID matching the prefix\n"


@dataclass
class RuntimeServer:
    """One server of a backend."""

    host: str
    port: int
    weight: int
    most_open: int
    admin: int = 1
    is_up: bool = True
    open: int = 0
    queued: int = 0
    total: int = 0
    is_checked: bool = False


@dataclass
class RuntimeProcess:
    """One process of HAProxy, with what it has read and what it was told since."""

    pid: int
    old: bool = False
    backends: dict[str, dict[str, RuntimeServer]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)  # requests that wait for any server, by backend
    dropped_logs: int = 0

    def answer(self, command: str) -> str:
        """Returns the answer to a runtime command, with its end."""
        words = command.split(" ")
        match words:
            case ["show", "map", name]:
                known = self.maps.get(name)
                lines = [f"0x{at:x} {key} {value}\n" for at, (key, value) in enumerate((known or {}).items())]
                return f"{changes.NO_MAP}\n\n" if known is None else "".join((*lines, "\n"))
            case ["show", "info"]:
                return f"Name: HAProxy\nPid: {self.pid}\nDroppedLogs: {self.dropped_logs}\n\n"
            case ["show", "servers", "state"]:
                return f"1\n# {COLUMNS}\n{''.join(self._list_states())}\n"
            case ["show", "stat", "-1", kinds, "-1"]:
                return "# pxname,svname,qcur,qmax,scur,smax,slim,stot,\n" + "".join(self._list_loads(int(kinds))) + "\n"
            case ["add" | "set", "map", name, key, value]:
                self.maps[name][key] = value
            case ["del", "map", name, key]:
                del self.maps[name][key]
            case ["del", "server", place]:
                return self._delete(*place.split("/")) + "\n"
            case _ if self.old:
                return f"{changes.DISABLED}\n"
            case ["add", "server", place, *arguments]:
                backend, name = place.split("/")
                self.backends[backend][name] = _read_server(" ".join((name, *arguments)))[1]
                return f"{changes.ADDED}\n"
            case ["enable", "health", place]:
                self.find(place).is_checked = True
            case ["set", "server", place, "state", state]:
                self.find(place).admin = STATES[state]
            case ["set", "server", place, "weight", weight]:
                self.find(place).weight = int(weight)
            case ["set", "server", place, "addr", host, "port", port]:
                self.find(place).host, self.find(place).port = host, int(port)
            case ["set", "maxconn", "server", place, most]:
                self.find(place).most_open = int(most)
            case _:
                return f"Unknown command: {command}\n"
        return "\n"

    def find(self, place: str) -> RuntimeServer:
        backend, name = place.split("/")
        return self.backends[backend][name]

    def _delete(self, backend: str, name: str) -> str:
        if backend not in self.backends:
            return changes.NO_BACKEND
        if name not in self.backends[backend]:
            return changes.NO_SERVER
        if self.old:
            return changes.DISABLED
        if self.backends[backend][name].open:
            return changes.ATTACHED
        del self.backends[backend][name]
        return changes.DELETED

    def _list_states(self) -> Iterator[str]:
        for backend, servers in {**self.backends, "own": {"theirs": RuntimeServer("10.9.9.9", 1, 1, 1, 0)}}.items():
            for name, each in servers.items():
                state = 2 if each.is_up else 0
                yield f"3 {backend} 1 {name} {each.host} {state} {each.admin} {each.weight} {each.port}\n"

    def _list_loads(self, kinds: int) -> Iterator[str]:
        for backend, servers in self.backends.items():
            if kinds & 4:
                for name, each in servers.items():
                    yield f"{backend},{name},{each.queued},0,{each.open},0,{each.most_open},{each.total},\n"
            if kinds & 2:
                total = sum(each.open + each.queued for each in servers.values()) + self.waiting.get(backend, 0)
                yield f"{backend},BACKEND,{self.waiting.get(backend, 0)},0,{total},0,,{total},\n"
        yield "own,theirs,0,0,7,0,,7,\nown,BACKEND,1,0,7,0,,7,\n"


def _read_server(line: str) -> tuple[str, RuntimeServer]:
    match = SERVER.fullmatch(line)
    assert match, line
    return match[1], RuntimeServer(match[2], int(match[3]), int(match[4]), int(match[5]))


class RuntimeHaproxy:
    """A master with its processes; `commands` are what it was asked, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "master.sock"
        self.state = folder / "state"
        self.processes: list[RuntimeProcess] = []
        self.commands: list[str] = []
        self.instead: Callable[[str], str | None] = lambda command: None  # an answer, or None for the usual one
        self.next_pid = 100
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.path))
        self._socket.listen(64)
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def now(self) -> RuntimeProcess:
        """Returns the process that takes connections."""
        return next(process for process in self.processes if not process.old)

    def changed(self) -> list[str]:
        """Returns the commands since the last call that change something, without the fences."""
        found = [each for each in self.commands if not each.startswith("show") and "/fence" not in each]
        self.commands.clear()
        return found

    def start_process(self) -> None:
        """Starts a process that reads the files; those before finish their requests."""
        for process in self.processes:
            process.old = True
        self.next_pid += 1
        process = RuntimeProcess(self.next_pid)
        for name in (SERVICES, *MAPS):
            path = self.state / name
            lines = path.read_text().splitlines()
            process.maps[str(path)] = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in lines}
        servers: dict[str, RuntimeServer] = {}
        for line in (self.state / GENERATED).read_text().splitlines():
            if line.startswith("backend "):
                servers = {}
                if line.split(" ")[1][3:].isdigit():
                    process.backends[line.split(" ")[1]] = servers
            elif line.startswith("    server ") and " weight " in line:
                name, server = _read_server(line.removeprefix("    server "))
                server.admin, server.is_checked = 0, True
                servers[name] = server
        self.processes.insert(0, process)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                with suppress(OSError), caller:
                    text = b""
                    while piece := caller.recv(1 << 16):
                        text += piece
                    caller.sendall(self._answer(text.decode().removesuffix("\n")).encode())

    def _answer(self, line: str) -> str:
        target, command = line[2:].split(" ", 1) if line.startswith("@!") else ("", line)
        self.commands.append(command)
        said = self.instead(line)
        if said is not None:
            return said
        if command == "reload":
            self.start_process()
            return "Success=1\n"
        if command == "show proc":
            lines = [[f"{each.pid} worker 1 0d00h00m00s 2.6.12\n" for each in self.processes if each.old is old]
                     for old in (False, True)]  # fmt: skip
            head = "#<PID> <type> <reloads> <uptime> <version>\n1 master 5 0d00h02m07s 2.6.12\n# workers\n"
            return head + "".join(lines[0]) + "# old workers\n" + "".join(lines[1]) + "# programs\n"
        process = next((each for each in self.processes if str(each.pid) == target), None)
        return process.answer(command) if process else GONE


@contextmanager
def runtime_haproxy(folder: Path) -> Iterator[RuntimeHaproxy]:
    (folder / "state").mkdir(parents=True)
    haproxy = RuntimeHaproxy(folder)
    try:
        yield haproxy
    finally:
        haproxy.close()
