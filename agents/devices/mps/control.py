"""The MPS daemons of this machine's GPUs, controlled through NVIDIA's own program."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agents.devices.mps import grammar, processes
from agents.devices.mps.daemon_reader import DaemonReader, DaemonStatus, make_malformed_error
from agents.devices.mps.launching import ask_to_launch
from agents.devices.mps.limits import client_environment
from agents.devices.mps.program import PROGRAM, Program
from agents.seams.device import DeviceError, MpsState, Trouble

DEADLINE_SECONDS = 3.0
START_SECONDS = 10.0
TERMINATE_SECONDS = 3.0  # it takes a moment, or for ever with a stopped client, and no one else is answered meanwhile
QUIT_SECONDS = 2  # after which the daemon itself ends servers that still have clients
PAUSE_SECONDS = 0.02

log = logging.getLogger(__name__)


class MpsControl:
    """One daemon per GPU, under `root/UUID`, with this process's UID: a server takes clients of one UID only.

    A daemon that does not answer is TIMEOUT, one whose answer does not parse GARBLED; neither is ever taken for
    "no clients" or for "a client".
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
        launcher: Path | None = None,  # folder of what starts daemons in our place
    ) -> None:
        self._launcher = launcher
        self._program = Program(root, program)
        self._deadline_seconds = deadline_seconds
        self._start_seconds = start_seconds
        self._terminate_seconds = terminate_seconds
        self._quit_seconds = quit_seconds
        self._looking = DaemonReader(self._program)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def start(self, uuid: str) -> None:
        with self._locks[uuid]:
            self._refuse_others(uuid)
            if self._answers(uuid):
                return
            pipe = self._program.pipe(uuid)
            if processes.daemon_pid(pipe) is not None:
                raise DeviceError(Trouble.TIMEOUT, uuid, "the MPS daemon is running but does not answer")
            if len(os.fsencode(pipe / "control")) > grammar.LONGEST_SOCKET_PATH_BYTES:
                raise DeviceError(Trouble.DOWN, uuid, f"{pipe} is too long for the path of a socket")
            self._clear(pipe)
            for folder in (pipe, self._program.logs(uuid)):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._launcher is None:
                self._program.launch(uuid, self._start_seconds)
            else:
                ask_to_launch(self._launcher, uuid)
            self._wait_for(uuid)

    def stop(self, uuid: str) -> None:
        """Asks the daemon to quit, then kills it, also when it hangs."""
        with self._locks[uuid]:
            pipe = self._program.pipe(uuid)
            if not pipe.exists():
                return
            patience_seconds = self._deadline_seconds + self._quit_seconds
            until = time.monotonic() + patience_seconds
            try:
                self._program.say(uuid, f"quit -t {self._quit_seconds}\n", patience_seconds)
            except DeviceError:
                until = 0.0  # it did not receive the command
            while leftover := processes.all_of(pipe):
                if time.monotonic() > until:
                    self._kill(pipe, leftover)
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

    def look(self, uuid: str) -> DaemonStatus:
        """Returns state and clients by one run of the program; DeviceError DOWN where there is no daemon."""
        return self._looking.look(uuid, self._deadline_seconds)

    def terminate(self, uuid: str, pid: int) -> bool:
        servers = [server for server, clients in self.look(uuid).clients.items() if pid in clients]
        if not servers:
            return False
        commands = [f"terminate_client {server} {pid}" for server in servers]
        try:
            replies = self._program.ask(uuid, commands, time.monotonic() + self._terminate_seconds)
            outcomes = [grammar.parse_termination(reply) for reply in replies]
        except grammar.UnreadableMpsOutput as error:
            raise make_malformed_error(uuid, error) from error
        return all(outcomes)

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        return client_environment(uuid, self._program.pipe(uuid), sm_percent, memory_gib)

    def folders(self, uuid: str) -> tuple[Path, ...]:
        return (self._program.pipe(uuid),)

    def find_foreign(self, uuid: str) -> list[int]:
        """Returns the processes of other owners' MPS that may use the GPU."""
        return processes.find_foreign(uuid, self._program.pipe(uuid), self._program.logs(uuid))

    def _refuse_others(self, uuid: str) -> None:
        """Raises DeviceError FOREIGN: a GPU has one owner of MPS, whose server sets what clients may do."""
        others = self.find_foreign(uuid)
        if others:
            what = f"MPS runs that this agent did not start: {processes.describe(others[0])}"
            raise DeviceError(Trouble.FOREIGN, uuid, what)

    def _answers(self, uuid: str) -> bool:
        try:
            self.look(uuid)
        except DeviceError as error:
            if error.trouble is Trouble.DOWN:
                return False
            raise
        return True

    def _wait_for(self, uuid: str) -> None:
        """Waits until the daemon that was just started answers; earlier output is ignored."""
        until = time.monotonic() + self._start_seconds
        while True:
            try:
                if self._answers(uuid):
                    return
            except DeviceError:
                if time.monotonic() > until:
                    raise
            if time.monotonic() > until:
                logs = self._program.logs(uuid)
                raise DeviceError(Trouble.DOWN, uuid, f"the MPS daemon exited after its start: see {logs}")
            time.sleep(PAUSE_SECONDS)

    def _clear(self, pipe: Path) -> None:
        """Kills servers of a daemon that was killed, which would block the GPU, and puts its folder away.

        A container that ran there keeps the old folder, and cannot plant links for the next daemon to follow.
        """
        self._kill(pipe, processes.all_of(pipe))
        if pipe.exists():
            away = Path(tempfile.mkdtemp(prefix="old-", dir=pipe.parent))
            pipe.rename(away / "pipe")
            with suppress(RecursionError):  # folders nested too deeply to delete must not keep the next daemon away
                shutil.rmtree(away, ignore_errors=True)

    def _kill(self, pipe: Path, pids: Sequence[int]) -> None:
        for pid in pids:
            log.warning("killing leftover MPS process %s of %s", pid, pipe)
            processes.kill(pid, pipe)
        until = time.monotonic() + self._deadline_seconds
        while processes.all_of(pipe) and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
