"""The pipe directory of one simulated MPS daemon: its clients, and its socket, which exists while the daemon is up."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.devices.simulated.client import LONGEST_LINE_BYTES, SOCKET
from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.loop import Loop
from agents.devices.simulated.machine import Machine
from agents.devices.simulated.peer import BACKLOG_CONNECTIONS, Peer
from agents.devices.simulated.refusals import INVALID_VALUE, NO_DEVICE, TERMINATED, CudaRefusal
from agents.devices.simulated.speeds import PlayedLoad
from agents.host.wire import listen, peer_pid

HELLO_SECONDS = 3.0
MOST_CONNECTIONS = 200  # on one GPU, clients or not


class Pipe:
    """Opens and closes with the daemon: `follow` after anything may have changed it."""

    def __init__(self, folder: Path, uuid: str, machine: Machine, loop: Loop) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / SOCKET
        self._path.unlink(missing_ok=True)  # left by a driver that was killed
        self._uuid = uuid
        self._machine = machine
        self._loop = loop
        self._listener: socket.socket | None = None
        self._clients: dict[_Client, float] = {}  # with the time at which each connected, in that order
        self._looking = False

    def follow(self) -> None:
        """Opens or closes the socket with the daemon, and informs clients that lost their context."""
        up = self._machine.slots[self._uuid].daemon.up
        if up and self._listener is None:
            self._listener = listen(self._path, BACKLOG_CONNECTIONS)
            self._loop.welcome(self._listener, self._meet)
        elif not up and self._listener is not None:
            self.close()
        for client in list(self._clients):
            client.follow()

    def close(self) -> None:
        if self._listener is not None:
            self._loop.forget(self._listener)
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)
        for client in list(self._clients):
            if not client.informed:
                client.peer.end()

    def _meet(self, connection: socket.socket) -> None:
        if len(self._clients) >= MOST_CONNECTIONS:
            connection.close()
            return
        client = _Client(connection, self._uuid, self._machine, self._loop.clock, self._gone)
        self._clients[client] = self._loop.clock()
        self._loop.attend(client.peer)
        self._look_later()

    def _look_later(self) -> None:
        """Schedules one check for all: a timer for each would keep those that are long gone."""
        if not self._looking:
            self._looking = True
            self._loop.after(HELLO_SECONDS, self._look)

    def _look(self) -> None:
        """Drops connections that have sent nothing."""
        self._looking = False
        before = self._loop.clock() - HELLO_SECONDS
        for client, came in list(self._clients.items()):
            if came <= before and not client.introduced:
                client.peer.end()
        if not all(client.introduced for client in self._clients):
            self._look_later()

    def _gone(self, client: _Client) -> None:
        self._loop.forget(client.peer.connection)
        self._clients.pop(client, None)


class _Client:
    """One connection: a client from its first line until it closes."""

    def __init__(
        self,
        connection: socket.socket,
        uuid: str,
        machine: Machine,
        clock: Callable[[], float],
        gone: Callable[[_Client], None],
    ) -> None:
        self.peer = Peer(connection, LONGEST_LINE_BYTES, self._line, self._end)
        self.informed = False  # informed of its end
        self._pid = peer_pid(connection)
        self._uuid = uuid
        self._machine = machine
        self._clock = clock
        self._gone = gone
        self._context: SimulatedContext | None = None

    @property
    def introduced(self) -> bool:
        return self._context is not None

    def follow(self) -> None:
        context = self._context
        if context is None or context.error is None or self.informed:
            return
        if context.error == 0:  # its daemon is gone, so no one reports the error
            self.peer.end()
            return
        self.informed = True
        self._say({"error": context.error, "message": "terminated, or hit by a fatal fault"})

    def _line(self, line: bytes) -> None:
        try:
            words = json.loads(line)
            answer = self._obey(words) if isinstance(words, dict) else None
        except CudaRefusal as refused:
            answer = {"error": refused.code, "message": refused.message}
        except (ValueError, RecursionError):
            answer = None
        if answer is None:
            self.peer.end()
            return
        self._say(answer)
        if self._context is None:
            self.peer.end()

    def _obey(self, words: dict[str, Any]) -> dict[str, Any]:
        """Returns the protocol's answer; raises CudaRefusal, or ValueError for an unknown request."""
        self._machine.at(self._uuid, self._clock())
        context = self._context
        if context is None:
            if words.get("uuid") != self._uuid:
                raise CudaRefusal(NO_DEVICE, f"this is the daemon of {self._uuid}")
            percent, limit = _number(words, "smPercent", 100.0), words.get("memoryLimitGib")
            if not 0 < percent <= 100:
                raise CudaRefusal(INVALID_VALUE, f"active thread percentage {percent:g} is outside 0..100")
            limit_gib = None if limit is None else _number(words, "memoryLimitGib", 0.0)
            memory_gib = _number(words, "memoryGib", 0.0)
            load = PlayedLoad.read(words["load"]) if "load" in words else None
            context = self._machine.attach(self._uuid, self._pid, percent, limit_gib, memory_gib)
            self._context = context
            context.load = load
            return {"smCount": context.sm_count} | self._times(context)
        if context.error is not None:
            raise CudaRefusal(TERMINATED, "terminated")
        if "memoryGib" in words:
            self._machine.hold(self._uuid, context, _number(words, "memoryGib", 0.0))
        elif "busy" in words:
            self._machine.busy(self._uuid, context, _number(words, "busy", 0.0))
            if context.load is not None:
                context.load.batch = min(context.load.largest_batch, max(1, int(_number(words, "batch", 1.0))))
        else:
            raise ValueError("expected memoryGib or busy")
        return self._times(context) if "busy" in words else {}

    def _times(self, context: SimulatedContext) -> dict[str, Any]:
        times = self._machine.times_ms(self._uuid, context)
        return {"timesMs": times} if times else {}

    def _say(self, words: dict[str, Any]) -> None:
        self.peer.say(json.dumps(words).encode())

    def _end(self) -> None:
        self._gone(self)
        if self._context is not None:
            self._machine.at(self._uuid, self._clock())
            self._machine.close(self._uuid, self._context)


def _number(words: dict[str, Any], name: str, default: float) -> float:
    value = words.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number")
    number = float(value) if abs(value) < 1e12 else math.inf
    if not 0 <= number < 1e12:
        raise ValueError(f"{name} is out of range")
    return number
