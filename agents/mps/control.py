"""The MPS daemons of this machine's GPUs, spoken to through NVIDIA's own control program."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.device import DeviceError, MpsState, Trouble
from agents.mps import grammar, processes
from agents.mps.program import PROGRAM, Program

DEADLINE_SECONDS = 3.0
START_SECONDS = 10.0
TERMINATE_SECONDS = 10.0
QUIT_SECONDS = 2  # after which the daemon itself ends servers that still have clients
PAUSE_SECONDS = 0.02
_TRIES = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
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


class MpsControl:
    """One daemon per GPU, under `root/UUID`, with the UID of this process: servers take clients of one UID only.

    A daemon that does not answer is TIMEOUT, one whose answer is not in the grammar GARBLED; neither is ever read as
    "no clients" nor as "a client".
    """

    def __init__(
        self,
        root: Path,
        program: str = PROGRAM,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        start_seconds: float = START_SECONDS,
        terminate_seconds: float = TERMINATE_SECONDS,
        quit_seconds: int = QUIT_SECONDS,
    ) -> None:
        self._program = Program(root, program)
        self._deadline_seconds = deadline_seconds
        self._start_seconds = start_seconds
        self._terminate_seconds = terminate_seconds
        self._quit_seconds = quit_seconds
        self._servers: dict[str, frozenset[int]] = {}  # as last seen: asked about in the same breath as the list
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def start(self, uuid: str) -> None:
        with self._locks[uuid]:
            if self._answers(uuid):
                return
            pipe = self._program.pipe(uuid)
            if processes.daemon(pipe) is not None:
                raise DeviceError(Trouble.TIMEOUT, uuid, "its MPS daemon runs and does not answer")
            if len(os.fsencode(pipe / "control")) > grammar.LONGEST_SOCKET_PATH:
                raise DeviceError(Trouble.DOWN, uuid, f"{pipe} is too long for the path of a socket")
            (pipe / "log").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._clear(pipe)
            self._program.launch(uuid, self._start_seconds)
            until = time.monotonic() + self._start_seconds
            while not self._answers(uuid):
                if time.monotonic() > until:
                    raise DeviceError(
                        Trouble.DOWN, uuid, f"its MPS daemon was started and does not answer: see {pipe}/log"
                    )
                time.sleep(PAUSE_SECONDS)

    def stop(self, uuid: str) -> None:
        """Asked to go, and made to: also one that hangs."""
        with self._locks[uuid]:
            pipe = self._program.pipe(uuid)
            self._servers.pop(uuid, None)
            if not pipe.exists():
                return
            patience_seconds = self._deadline_seconds + self._quit_seconds
            until = time.monotonic() + patience_seconds
            try:
                self._program.say(uuid, f"quit -t {self._quit_seconds}\n", patience_seconds)
            except DeviceError:
                until = 0.0  # it did not hear of it
            while left := processes.all_of(pipe):
                if time.monotonic() > until:
                    self._kill(pipe, left)
                    return
                time.sleep(PAUSE_SECONDS)

    def state(self, uuid: str) -> MpsState:
        try:
            return self.look(uuid).state
        except DeviceError as error:
            if error.trouble is Trouble.DOWN:
                return MpsState.DOWN
            raise

    def clients(self, uuid: str) -> frozenset[int]:
        return self.look(uuid).all_clients()

    def look(self, uuid: str) -> Look:
        """State and clients at the price of one run of the program; DeviceError DOWN where there is no daemon."""
        until = time.monotonic() + self._deadline_seconds
        for last in (False, True):
            try:
                return self._look(uuid, until)
            except grammar.Garbled as error:
                # A server that ends while it is asked about garbles a reply, too: once more, and then it is believed.
                if last or time.monotonic() >= until:
                    raise DeviceError(
                        Trouble.GARBLED, uuid, f"its MPS daemon said what is no answer: {error}"
                    ) from error
        raise AssertionError

    def terminate(self, uuid: str, pid: int) -> bool:
        servers = [server for server, clients in self.look(uuid).clients.items() if pid in clients]
        if not servers:
            return False
        commands = [f"terminate_client {server} {pid}" for server in servers]
        try:
            said = self._program.ask(uuid, commands, time.monotonic() + self._terminate_seconds)
            outcomes = [grammar.terminated(reply) for reply in said]
        except grammar.Garbled as error:
            raise _no_answer(uuid, error) from error
        return all(outcomes)

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        if not 0 < sm_percent <= 100:
            raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"SM share {sm_percent:g} is outside 0..100")
        mebibytes = math.floor(memory_gib * 1024 + 1e-6) if math.isfinite(memory_gib) else 0
        if mebibytes < 1:
            raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"memory limit {memory_gib:g} GiB is below 1 MiB")
        # Device 0: the daemon shows its clients this GPU alone.
        return {
            "CUDA_VISIBLE_DEVICES": uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self._program.pipe(uuid)),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{sm_percent:g}",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={mebibytes}M",
        }

    def folders(self, uuid: str) -> tuple[Path, ...]:
        return (self._program.pipe(uuid),)

    def _look(self, uuid: str, until: float) -> Look:
        for _ in range(_TRIES):
            asked = sorted(self._servers.get(uuid, frozenset()))
            # Lists twice: what spoils one of two is found out.
            commands = ["get_server_list", "get_server_list"]
            for server in asked:
                commands += [f"get_server_status {server}", f"get_client_list {server}", f"get_client_list {server}"]
            first, second, *said = self._program.ask(uuid, commands, until)
            servers = grammar.pids(first)
            if grammar.pids(second) != servers:
                raise grammar.Garbled("its list of servers is another each time")
            if servers == frozenset(asked):
                return self._read(uuid, asked, said)
            self._servers[uuid] = servers
        raise grammar.Garbled("its list of servers is another each time")

    def _read(self, uuid: str, servers: Sequence[int], said: Sequence[Sequence[str]]) -> Look:
        states: list[MpsState] = []
        clients: dict[int, frozenset[int]] = {}
        for at, server in enumerate(servers):
            state, first, second = said[3 * at : 3 * at + 3]
            states.append(grammar.status(state))
            clients[server] = grammar.pids(first)
            if grammar.pids(second) != clients[server]:
                raise grammar.Garbled("its list of clients is another each time")
            uid = processes.owner(server)
            if keeps_waiting(uid, os.getuid()):
                what = f"its MPS server belongs to UID {uid}, and clients of UID {os.getuid()} would wait for ever"
                raise DeviceError(Trouble.NO_PERMISSION, uuid, what)
        for state_of_all in (MpsState.FAULT, MpsState.ACTIVE):
            if state_of_all in states:
                return Look(state_of_all, clients)
        return Look(MpsState.IDLE, clients)

    def _answers(self, uuid: str) -> bool:
        try:
            self.look(uuid)
        except DeviceError as error:
            if error.trouble is Trouble.DOWN:
                return False
            raise
        return True

    def _clear(self, pipe: Path) -> None:
        """Servers of a daemon that was killed would keep the GPU from the next one; its files are nobody's."""
        self._kill(pipe, processes.all_of(pipe))
        for left in pipe.iterdir():
            if not left.is_dir():
                left.unlink(missing_ok=True)

    def _kill(self, pipe: Path, pids: Sequence[int]) -> None:
        for pid in pids:
            log.warning("killing %s, which MPS left in %s", pid, pipe)
            processes.kill(pid, pipe)
        until = time.monotonic() + self._deadline_seconds
        while processes.all_of(pipe) and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)


def _no_answer(uuid: str, error: grammar.Garbled) -> DeviceError:
    return DeviceError(Trouble.GARBLED, uuid, f"its MPS daemon said what is no answer: {error}")
