"""Stops a copy step by step: drain, SIGTERM, and SIGKILL as the last resort; then checks that its memory is free."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agents.host.stopping import TERM_SECONDS, StopSignal, due_signal
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import ClientStuck, NodeDrivers
from agents.runtime import Running
from agents.seams.device import DeviceError, Trouble
from agents.templates import Filled

FREE_SECONDS = 10.0  # from the end of the process until its memory must be free
NOTHING_HELD = (Trouble.DOWN, Trouble.FAULT, Trouble.LOST, Trouble.NO_DRIVER)  # no client there holds or loses anything

log = logging.getLogger(__name__)


class SentSignals:
    """The signals that copies got from this agent: a program that saves in its handler must not be interrupted."""

    def __init__(self) -> None:
        self._sent: set[tuple[str, str]] = set()
        self._killed_at: dict[str, float] = {}

    def once(self, copy: str, what: str, send: Callable[[], object]) -> None:
        if (copy, what) not in self._sent:
            send()
            self._sent.add((copy, what))

    def has_sent(self, copy: str, what: str) -> bool:
        return (copy, what) in self._sent

    def note_kill(self, copy: str, now: float) -> None:
        self._killed_at.setdefault(copy, now)

    def count_killed_seconds(self, copy: str, now: float) -> float | None:
        """Returns how long ago the copy was first killed; None if it was not."""
        return now - self._killed_at[copy] if copy in self._killed_at else None

    def forget(self, copy: str) -> None:
        self._sent.difference_update([key for key in tuple(self._sent) if key[0] == copy])  # others send meanwhile
        self._killed_at.pop(copy, None)


def stop_copy(
    copy: NodeCopy,
    filled: Filled | None,
    drivers: NodeDrivers,
    now: float,
    sent: SentSignals,
    alone: bool = False,
) -> bool:
    """Takes the next step to end the process; returns whether it has ended and its memory is free.

    NVIDIA does not say what an MPS client that is killed while it computes does to the others. So it is drained first,
    then gets SIGTERM, then MPS terminates its client, and then it is killed. Raises ClientStuck if it holds its device
    even then. A copy that is `alone` on a recycled GPU can harm no other and is killed at once.
    """
    running = copy.running
    if running is None:
        drivers.runtime.withdraw(copy.id)
        return True
    patience = filled.drain_seconds if filled else 0.0
    save_seconds = filled.checkpoint_seconds if filled else 0.0
    waited = now - copy.since
    pids = drivers.runtime.pids(running)
    if not drivers.runtime.alive(running):
        if pids:  # its children outlive it, and no step above would stop them
            _make(copy, running, pids, drivers, sent, now, alone)
            return False
        drivers.runtime.withdraw(copy.id, running)
        killed = sent.count_killed_seconds(copy.id, now)
        waits = waited - patience - save_seconds - TERM_SECONDS if killed is None else killed
        return _is_free(copy, drivers, waits > FREE_SECONDS)
    if not copy.served and drivers.runtime.stopped(running):
        if copy.ended_at is not None:  # it waits in host memory: it has saved, and going on would take its GPU again
            _make(copy, running, pids, drivers, sent, now, alone)
            return False
        drivers.runtime.tell(running, "SIGCONT")  # it still holds its GPU, and a stopped process takes no signal
    if copy.served and filled and filled.drain and waited <= patience:
        drivers.talk.ask(copy.listens_at, filled.drain)
        return False
    if filled and filled.checkpoint_command and not copy.served:
        sent.once(copy.id, "command", lambda: drivers.runtime.run_beside(running, filled, save_seconds))
    saves = filled.checkpoint_signal if filled and not copy.served else ""
    asked = waited - patience if copy.served else waited
    match due_signal(asked, saves, 0.0 if copy.served else patience, save_seconds):
        case StopSignal.SAVE:
            sent.once(copy.id, saves, lambda: drivers.runtime.tell(running, saves))
        case StopSignal.ASK:
            sent.once(copy.id, "ask", lambda: drivers.runtime.end(running, force=False))
        case StopSignal.MAKE:
            _make(copy, running, pids, drivers, sent, now, alone)
    return False


def _make(
    copy: NodeCopy,
    running: Running,
    pids: frozenset[int],
    drivers: NodeDrivers,
    sent: SentSignals,
    now: float,
    alone: bool,
) -> None:
    """Takes the next step to end the process by force: MPS terminates its client, and the step after that kills it.

    A client that is stopped cannot be terminated, and the daemon that tries answers nobody else. It is killed, and so
    is one that MPS does not terminate. The others outlived that on real GPUs; a restart of the daemon would end them.
    """
    can_terminate = not alone and not drivers.runtime.stopped(running)
    if can_terminate and not sent.has_sent(copy.id, "terminate"):
        sent.once(copy.id, "terminate", lambda: _terminate(copy, pids, drivers))
        return
    if (sent.count_killed_seconds(copy.id, now) or 0.0) > FREE_SECONDS:
        raise ClientStuck(f"{copy.id} was killed and does not end")
    sent.note_kill(copy.id, now)
    drivers.runtime.end(running, force=True)


def _terminate(copy: NodeCopy, pids: frozenset[int], drivers: NodeDrivers) -> None:
    if copy.gpus:
        return  # it has its GPUs alone: killing it harms no other
    try:
        for pid in sorted(pids & drivers.mps.clients(copy.gpu)):
            if not drivers.mps.terminate(copy.gpu, pid):
                log.warning("MPS does not terminate client %d of %s, which is killed", pid, copy.id)
    except DeviceError as error:
        if error.trouble not in NOTHING_HELD:
            log.warning("MPS does not terminate %s, which is killed: %s", copy.id, error)


def _is_free(copy: NodeCopy, drivers: NodeDrivers, late: bool) -> bool:
    """Returns whether neither MPS nor the driver lists the process any more."""
    assert copy.running is not None
    pid = copy.running.pid
    held = False
    try:
        held = any(process.pid == pid for gpu in copy.devices for process in drivers.device.processes(gpu))
        held = held or (not copy.gpus and pid in drivers.mps.clients(copy.gpu))
    except DeviceError as error:
        held = held or error.trouble not in NOTHING_HELD
    if held and late:
        raise ClientStuck(f"{copy.id} has exited, but its device memory is still held")
    return not held
