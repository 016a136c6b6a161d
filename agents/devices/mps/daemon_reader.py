"""State and clients of a daemon at one moment, believed only where what it says agrees with itself."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.devices.mps import grammar, processes
from agents.devices.mps.program import Program
from agents.seams.device import DeviceError, MpsState, Trouble

_TRIES = 3


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """One daemon at one moment: its state, and the clients of each of its servers."""

    state: MpsState
    clients: Mapping[int, frozenset[int]]

    def all_clients(self) -> frozenset[int]:
        return frozenset().union(*self.clients.values())


def keeps_waiting(server_uid: int | None, our_uid: int) -> bool:
    """Whether our clients would wait for a server of their own while this one serves another user.

    Root's clients may run as anybody, so it knows whom it starts.
    """
    return server_uid is not None and our_uid not in (0, server_uid)


class DaemonReader:
    """Remembers each daemon's servers, so that one run of the program answers everything."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._servers: dict[str, frozenset[int]] = {}

    def look(self, uuid: str, seconds: float) -> DaemonStatus:
        """Raises DeviceError: DOWN, TIMEOUT, GARBLED, or NO_PERMISSION where the server is another user's."""
        until = time.monotonic() + seconds
        try:
            return self._look(uuid, until)
        except grammar.UnreadableMpsOutput:
            pass  # as is the answer of a server that ends while it is asked about: once more, and then it is believed
        try:
            return self._look(uuid, until)
        except grammar.UnreadableMpsOutput as error:
            raise no_answer(uuid, error) from error

    def _look(self, uuid: str, until: float) -> DaemonStatus:
        for _ in range(_TRIES):
            asked = sorted(self._servers.get(uuid, frozenset()))
            # Lists twice: what spoils one of two is found out.
            commands = ["get_server_list", "get_server_list"]
            for server in asked:
                commands += [f"get_server_status {server}", f"get_client_list {server}", f"get_client_list {server}"]
            first, second, *said = self._program.ask(uuid, commands, until)
            servers = grammar.pids(first)
            if grammar.pids(second) != servers:
                raise grammar.UnreadableMpsOutput("its list of servers is another each time")
            if servers == frozenset(asked):
                return self._read(uuid, asked, said)
            self._servers[uuid] = servers
        raise grammar.UnreadableMpsOutput("its list of servers is another each time")

    def _read(self, uuid: str, servers: Sequence[int], said: Sequence[Sequence[str]]) -> DaemonStatus:
        states: list[MpsState] = []
        clients: dict[int, frozenset[int]] = {}
        for at, server in enumerate(servers):
            state, first, second = said[3 * at : 3 * at + 3]
            states.append(grammar.status(state))
            clients[server] = grammar.pids(first)
            if grammar.pids(second) != clients[server]:
                raise grammar.UnreadableMpsOutput("its list of clients is another each time")
            uid = processes.owner(server)
            if keeps_waiting(uid, os.getuid()):
                what = f"its MPS server belongs to UID {uid}, and clients of UID {os.getuid()} would wait for ever"
                raise DeviceError(Trouble.NO_PERMISSION, uuid, what)
        for state_of_all in (MpsState.FAULT, MpsState.ACTIVE):
            if state_of_all in states:
                return DaemonStatus(state_of_all, clients)
        return DaemonStatus(MpsState.IDLE, clients)


def no_answer(uuid: str, error: grammar.UnreadableMpsOutput) -> DeviceError:
    return DeviceError(Trouble.GARBLED, uuid, f"its MPS daemon said what is no answer: {error}")
