"""Reads state and clients of a daemon, and believes them only if the answers are consistent."""

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
    """A daemon's state, and the clients of each of its servers."""

    state: MpsState
    clients: Mapping[int, frozenset[int]]

    def all_clients(self) -> frozenset[int]:
        return frozenset().union(*self.clients.values())


def keeps_waiting(server_uid: int | None, our_uid: int) -> bool:
    """Returns True if our clients would wait for their own server while this one serves another user.

    Root may start clients as any user, so it decides for itself.
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
            pass  # a server that ends while it is asked also answers so: try once more, then believe it
        try:
            return self._look(uuid, until)
        except grammar.UnreadableMpsOutput as error:
            raise make_malformed_error(uuid, error) from error

    def _look(self, uuid: str, until: float) -> DaemonStatus:
        for _ in range(_TRIES):
            servers_asked = sorted(self._servers.get(uuid, frozenset()))
            # Each list is requested twice to detect a spoiled reply.
            commands = ["get_server_list", "get_server_list"]
            for server in servers_asked:
                commands += [f"get_server_status {server}", f"get_client_list {server}", f"get_client_list {server}"]
            first, second, *replies = self._program.ask(uuid, commands, until)
            servers = grammar.parse_pids(first)
            if grammar.parse_pids(second) != servers:
                raise grammar.UnreadableMpsOutput("the list of servers keeps changing")
            if servers == frozenset(servers_asked):
                return self._read(uuid, servers_asked, replies)
            self._servers[uuid] = servers
        raise grammar.UnreadableMpsOutput("the list of servers keeps changing")

    def _read(self, uuid: str, servers: Sequence[int], replies: Sequence[Sequence[str]]) -> DaemonStatus:
        states: list[MpsState] = []
        clients: dict[int, frozenset[int]] = {}
        for at, server in enumerate(servers):
            state, first, second = replies[3 * at : 3 * at + 3]
            states.append(grammar.parse_status(state))
            clients[server] = grammar.parse_pids(first)
            if grammar.parse_pids(second) != clients[server]:
                raise grammar.UnreadableMpsOutput("the list of clients keeps changing")
            uid = processes.owner_uid(server)
            if keeps_waiting(uid, os.getuid()):
                what = f"the MPS server belongs to UID {uid}, so clients of UID {os.getuid()} would wait forever"
                raise DeviceError(Trouble.NO_PERMISSION, uuid, what)
        for state_of_all in (MpsState.FAULT, MpsState.ACTIVE):
            if state_of_all in states:
                return DaemonStatus(state_of_all, clients)
        return DaemonStatus(MpsState.IDLE, clients)


def make_malformed_error(uuid: str, error: grammar.UnreadableMpsOutput) -> DeviceError:
    return DeviceError(Trouble.GARBLED, uuid, f"malformed answer of the MPS daemon: {error}")
