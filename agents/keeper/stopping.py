"""Stops a copy step by step: drain, SIGTERM, and SIGKILL as the last resort; then checks that its memory is free."""

from __future__ import annotations

from collections.abc import Callable

from agents.host.stopping import TERM_SECONDS, StopSignal, due_signal
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import ClientStuck, NodeDrivers
from agents.runtime import Running
from agents.seams.device import DeviceError, Trouble
from agents.templates import Filled

FREE_SECONDS = 10.0  # from the end of the process until its memory must be free
NOTHING_HELD = (Trouble.DOWN, Trouble.FAULT, Trouble.LOST, Trouble.NO_DRIVER)  # no client there holds or loses anything


class SentSignals:
    """The signals that copies got from this agent: a program that saves in its handler must not be interrupted."""

    def __init__(self) -> None:
        self._sent: set[tuple[str, str]] = set()

    def once(self, copy: str, what: str, send: Callable[[], object]) -> None:
        if (copy, what) not in self._sent:
            send()
            self._sent.add((copy, what))

    def has_sent(self, copy: str, what: str) -> bool:
        return (copy, what) in self._sent

    def forget(self, copy: str) -> None:
        self._sent.difference_update([key for key in tuple(self._sent) if key[0] == copy])  # others send meanwhile


def stop_copy(
    copy: NodeCopy,
    filled: Filled | None,
    drivers: NodeDrivers,
    now: float,
    alone: bool = False,
    sent: SentSignals | None = None,
) -> bool:
    """Takes the next step to end the process; returns whether it has ended and its memory is free.

    Killing an MPS client with work in flight can harm all others. So it is drained first, then gets SIGTERM, then MPS
    terminates its client, and only once MPS confirms that is it killed. Raises ClientStuck when MPS does not confirm.
    A copy that is `alone` on a recycled GPU can harm no other and is killed at once.
    """
    running = copy.running
    if running is None:
        return True
    sent = sent or SentSignals()
    patience = filled.drain_seconds if filled else 0.0
    save_seconds = filled.checkpoint_seconds if filled else 0.0
    waited = now - copy.since
    pids = drivers.runtime.pids(running)
    if not drivers.runtime.alive(running):
        if pids:  # its children outlive it, and no step above would stop them
            _make(running, copy, pids, drivers, alone)
            return False
        return _is_free(copy, drivers, waited > patience + save_seconds + TERM_SECONDS + FREE_SECONDS)
    if not copy.served and drivers.runtime.stopped(running):
        if copy.ended_at is not None:  # it waits in host memory: it has saved, and going on would take its GPU again
            _make(running, copy, pids, drivers, alone)
            return False
        drivers.runtime.tell(running, "SIGCONT")  # it still holds its GPU, and a stopped process takes no signal
    if copy.served and filled and filled.drain and waited <= patience:
        drivers.talk.ask(copy.port, filled.drain)
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
            _make(running, copy, pids, drivers, alone)
    return False


def _make(running: Running, copy: NodeCopy, pids: frozenset[int], drivers: NodeDrivers, alone: bool) -> None:
    if not alone:
        _terminate(copy, pids, drivers)
    drivers.runtime.end(running, force=True)


def _terminate(copy: NodeCopy, pids: frozenset[int], drivers: NodeDrivers) -> None:
    if copy.gpus:
        return  # it has its GPUs alone: killing it harms no other
    try:
        for pid in sorted(pids & drivers.mps.clients(copy.gpu)):
            if not drivers.mps.terminate(copy.gpu, pid):
                raise ClientStuck(f"{copy.id} does not exit, and MPS did not terminate its client {pid}")
    except DeviceError as error:
        if error.trouble not in NOTHING_HELD:
            raise ClientStuck(f"{copy.id} does not exit, and MPS does not answer: {error}") from error


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
