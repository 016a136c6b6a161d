"""The daemon of the fake MPS: NVIDIA's grammar on `control`, simulated CUDA clients on `device.sock`.

Run by control.c with nothing but the standard library. Its faults are files in the pipe directory, see __init__.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
LOG = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", str(PIPE))) / "control.log"
UUID = os.environ.get("CUDA_VISIBLE_DEVICES", "")
NVML = os.environ.get("GPUWRIGHT_NVML_STUB", "")
PID_FILE = PIPE / "nvidia-cuda-mps-control.pid"
GIB = 2**30
TICK_SECONDS = 0.02
TERMINATED = "the MPS server has ended this client"


def switch(name: str) -> str | None:
    try:
        return (PIPE / f"switch.{name}").read_text().strip()
    except FileNotFoundError:
        return None


def slow(name: str) -> None:
    time.sleep(float(switch(name) or 0))


class Gpu:
    """The GPU as the stand-in for NVML has it, where there is one."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        for uuid in Path(NVML).glob("gpu*/uuid") if NVML else ():
            if uuid.read_text().strip() == UUID:
                self.folder = uuid.parent

    def fact(self, key: str, otherwise: int) -> int:
        try:
            return int((self.folder / key).read_text()) if self.folder else otherwise
        except FileNotFoundError:
            return otherwise

    def free_gib(self) -> float:
        used = 0
        for file in (self.folder / "pids").glob("*") if self.folder else ():
            if file.name.isdecimal():
                used += max(0, int(file.read_text().split()[0]))
        return (self.fact("memory_bytes", 80 * GIB) - used) / GIB

    def hold(self, pid: int, memory_gib: float | None) -> None:
        """None: the process holds no context any more."""
        if self.folder is None:
            return
        file = self.folder / "pids" / str(pid)
        if memory_gib is None:
            file.unlink(missing_ok=True)
            return
        beside = file.with_name(f"{pid}.mps.new")
        beside.write_text(f"{round(memory_gib * GIB)} 1\n")
        beside.replace(file)


class Client:
    """A connection of a simulated CUDA client."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.rest = b""
        self.pid, self.uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self.attached = False
        self.memory_gib = 0.0
        self.limit_gib = float("inf")

    def say(self, words: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self.line.sendall(json.dumps(words).encode() + b"\n")


class Daemon:
    """Everything in one thread: what blocks a real daemon blocks this one, too."""

    def __init__(self, server_program: str, owner: int) -> None:
        self.server_program = server_program
        self.owner = owner  # a process of the tests, with which this one ends
        self.gpu = Gpu()
        self.server: subprocess.Popen[bytes] | None = None
        self.faulty = False
        self.default_percent = 100.0
        self.clients: dict[socket.socket, Client] = {}
        self.controls: dict[socket.socket, bytes] = {}
        self.waiting: list[tuple[socket.socket, bytes]] = []  # asked while it hangs
        self.quit_at: float | None = None
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        try:
            owner = os.pidfd_open(self.owner)
        except ProcessLookupError:
            return
        self.selector.register(owner, selectors.EVENT_READ)
        control, device = self.listen("control"), self.listen("device.sock")
        PID_FILE.write_text(f"{os.getpid()}\n")
        self.log("Starting control daemon")
        while True:
            for key, _ in self.selector.select(TICK_SECONDS):
                if key.fileobj == owner:
                    self.leave()
                elif key.fileobj is control:
                    self.accept(control, self.controls, b"")
                elif key.fileobj is device:
                    line = device.accept()[0]
                    self.clients[line] = Client(line)
                    self.selector.register(line, selectors.EVENT_READ)
                elif key.fileobj in self.controls:
                    self.hear_control(key.fileobj)
                elif key.fileobj in self.clients:
                    self.hear_client(key.fileobj)
            self.tick()

    def listen(self, name: str) -> socket.socket:
        path = PIPE / name
        path.unlink(missing_ok=True)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.bind(str(path))
        line.listen(128)
        self.selector.register(line, selectors.EVENT_READ)
        return line

    def accept(self, listener: socket.socket, into: dict[socket.socket, bytes], first: bytes) -> None:
        line = listener.accept()[0]
        into[line] = first
        self.selector.register(line, selectors.EVENT_READ)

    def tick(self) -> None:
        if not PIPE.is_dir():
            self.leave()
        if self.server is not None and self.server.poll() is not None:
            self.log(f"Server {self.server.pid} exited")
            self.gpu.hold(self.server.pid, None)
            self.server, self.faulty = None, False
            for client in self.attached():
                self.drop(client, {"error": 810, "message": "the MPS server is gone"})
        if switch("fault") is not None:
            (PIPE / "switch.fault").unlink(missing_ok=True)
            if self.attached():
                self.faulty = True
                self.log("Server encountered a fatal exception")
                for client in self.attached():
                    client.say({"error": 810, "message": "a client's fatal fault"})
        if self.faulty and not self.attached():
            self.faulty = False
        if self.waiting and switch("hang") is None:
            waiting, self.waiting = self.waiting, []
            for line, text in waiting:
                self.answer(line, text)
        if self.quit_at is not None and (not self.attached() or time.monotonic() >= self.quit_at):
            self.leave()

    # The control program.

    def hear_control(self, line: socket.socket) -> None:
        part = line.recv(65536)
        self.controls[line] += part
        if part:
            return
        self.selector.unregister(line)
        text = self.controls.pop(line)
        if switch("hang") is not None:
            self.waiting.append((line, text))
        else:
            self.answer(line, text)

    def answer(self, line: socket.socket, text: bytes) -> None:
        with line:
            for command in text.decode().splitlines():
                words = command.split()
                if not words:
                    continue
                slow(f"delay.{words[0]}")
                if switch(f"break.{words[0]}") is not None:
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                forced = switch(f"reply.{words[0]}")
                reply = forced.replace("\\n", "\n") if forced is not None else self.obey(words)
                if forced is not None:
                    self.log(f"Replied to {words[0]} as ordered")
                try:
                    line.sendall(reply.encode())
                except OSError:
                    return

    def obey(self, words: list[str]) -> str:
        server = self.server.pid if self.server else None
        match words:
            case ["get_server_list"]:
                return f"{server}\n" if server else ""
            case ["get_server_status", pid] if pid == str(server):
                return "FAULT\n" if self.faulty else "ACTIVE\n"
            case ["get_client_list", pid] if pid == str(server):
                return "".join(f"{pid}\n" for pid in sorted({client.pid for client in self.attached()}))
            case ["ps"]:
                rows = [f"{client.pid} 0 {server} {UUID[:22]} 0 client\n" for client in self.attached()]
                return "PID ID SERVER DEVICE NAMESPACE COMMAND\n" + "".join(rows)
            case ["terminate_client", pid, client] if pid == str(server):
                mine = [one for one in self.attached() if str(one.pid) == client]
                for one in mine:
                    self.drop(one, {"error": 810, "message": TERMINATED})
                return "0\n" if mine else "1\n"
            case ["get_default_active_thread_percentage"]:
                return f"{self.default_percent:.1f}\n"
            case ["set_default_active_thread_percentage", percent]:
                self.default_percent = float(percent)
                return f"{self.default_percent:.1f}\n"
            case ["start_server", "-uid", uid]:
                return "" if self.started(int(uid)) else "Failed to start server\n"
            case ["get_server_status" | "get_client_list" | "terminate_client", *_]:
                return "Invalid server PID\n"
            case ["quit"]:
                self.quit_at = float("inf")
                return ""
            case ["quit", "-t", seconds]:
                self.quit_at = time.monotonic() + float(seconds)
                return ""
        return "Unrecognized command\n"

    # Servers and clients.

    def started(self, uid: int) -> bool:
        if self.server is None:
            slow("delay.server")
            if uid != os.getuid() or switch("no_server") is not None:
                return False
            self.server = subprocess.Popen([self.server_program, "infinity"], start_new_session=True)
            self.gpu.hold(self.server.pid, 0.0)  # a context of its own
            self.log(f"Starting new server {self.server.pid} for user {uid}")
        return True

    def attached(self) -> list[Client]:
        return [client for client in self.clients.values() if client.attached]

    def hear_client(self, line: socket.socket) -> None:
        client = self.clients[line]
        try:
            part = line.recv(65536)
        except OSError:
            part = b""
        if not part:
            self.drop(client, None)
            return
        client.rest += part
        while b"\n" in client.rest and line in self.clients:
            text, _, client.rest = client.rest.partition(b"\n")
            words = json.loads(text)
            if not client.attached:
                self.attach(client, words)
            elif "memoryGib" in words:
                client.say(self.hold(client, float(words["memoryGib"])))
            else:
                client.say({})

    def attach(self, client: Client, words: dict[str, object]) -> None:
        if client.uid != os.getuid():
            return  # it waits for a server of its own user, and is told nothing
        if self.faulty or self.quit_at is not None:
            self.drop(client, {"error": 807, "message": "the MPS server is not ready"})
        elif len(self.attached()) >= int(switch("max_clients") or 48):
            self.drop(client, {"error": 808, "message": "the MPS server has all the clients it takes"})
        elif not self.started(client.uid):
            self.drop(client, {"error": 805, "message": "no MPS server"})
        else:
            client.limit_gib = float(words.get("memoryLimitGib") or "inf")  # type: ignore[arg-type]
            refused = self.hold(client, float(words.get("memoryGib") or 0))  # type: ignore[arg-type]
            if refused:
                self.drop(client, refused)
                return
            percent = min(self.default_percent, float(words.get("smPercent") or 100))  # type: ignore[arg-type]
            client.attached = True
            client.say({"smCount": max(1, int(self.gpu.fact("sm_count", 80) * percent / 100 + 1e-9))})

    def hold(self, client: Client, memory_gib: float) -> dict[str, object]:
        """What the client is told; empty when it has the memory."""
        if memory_gib > client.limit_gib + 1e-9 or memory_gib - client.memory_gib > self.gpu.free_gib() + 1e-9:
            return {"error": 2, "message": "out of memory"}
        client.memory_gib = memory_gib
        self.gpu.hold(client.pid, self.held(client.pid) if client.attached else self.held(client.pid) + memory_gib)
        return {}

    def held(self, pid: int) -> float:
        return sum(client.memory_gib for client in self.attached() if client.pid == pid)

    def drop(self, client: Client, words: dict[str, object] | None) -> None:
        if words is not None:
            client.say(words)
        del self.clients[client.line]
        self.selector.unregister(client.line)
        client.line.close()
        if client.attached:
            client.attached = False
            still = any(other.pid == client.pid for other in self.attached())
            self.gpu.hold(client.pid, self.held(client.pid) if still else None)

    def leave(self) -> None:
        for name in ("control", "device.sock"):
            (PIPE / name).unlink(missing_ok=True)
        for client in list(self.clients.values()):
            self.drop(client, None)
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.gpu.hold(self.server.pid, None)
        PID_FILE.unlink(missing_ok=True)
        self.log("Exiting")
        sys.exit(0)

    def log(self, words: str) -> None:
        with contextlib.suppress(FileNotFoundError), LOG.open("a") as file:  # its folder may be gone with the rest
            file.write(f"[Control {os.getpid():5}] {words}\n")


if __name__ == "__main__":
    Path("/proc/self/comm").write_text("nvidia-cuda-mps-control")
    Daemon(sys.argv[1], int(sys.argv[2])).run()
