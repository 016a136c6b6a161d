"""Stops a copy step by step: drain, SIGTERM, and SIGKILL as the last resort; then checks that its memory is free."""

from __future__ import annotations

from agents.host.stopping import SAVE_SECONDS, TERM_SECONDS, StopSignal, due_signal
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import ClientStuck, NodeDrivers
from agents.seams.device import DeviceError, Trouble
from agents.templates import Filled

FREE_SECONDS = 10.0  # from the end of the process until its memory must be free
NOTHING_HELD = (Trouble.DOWN, Trouble.FAULT, Trouble.LOST, Trouble.NO_DRIVER)  # no client there holds or loses anything


def stop_copy(copy: NodeCopy, filled: Filled | None, drivers: NodeDrivers, now: float, alone: bool = False) -> bool:
    """Takes the next step to end the process; returns whether it has ended and its memory is free.

    Killing an MPS client with work in flight can harm all others. So it is drained first, then gets SIGTERM, then MPS
    terminates its client, and only once MPS confirms that is it killed. Raises ClientStuck when MPS does not confirm.
    A copy that is `alone` on a recycled GPU can harm no other and is killed at once.
    """
    running = copy.running
    if running is None:
        return True
    patience = filled.drain_seconds if filled else 0.0
    waited = now - copy.since
    pids = drivers.runtime.pids(running)
    if not drivers.runtime.alive(running):
        if pids:  # its children outlive it, and no step above would stop them
            if not alone:
                _terminate(copy, pids, drivers)
            drivers.runtime.end(running, force=True)
            return False
        return _is_free(copy, drivers, waited > patience + SAVE_SECONDS + TERM_SECONDS + FREE_SECONDS)
    if copy.served and filled and filled.drain and waited <= patience:
        drivers.talk.ask(copy.port, filled.drain)
        return False
    saves = filled.checkpoint_signal if filled and not copy.served else ""
    match due_signal(waited - patience if copy.served else waited, saves, 0.0 if copy.served else patience):
        case StopSignal.SAVE:
            drivers.runtime.tell(running, saves)
        case StopSignal.ASK:
            drivers.runtime.end(running, force=False)
        case StopSignal.MAKE:
            if not alone:
                _terminate(copy, pids, drivers)
            drivers.runtime.end(running, force=True)
    return False


def _terminate(copy: NodeCopy, pids: frozenset[int], drivers: NodeDrivers) -> None:
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
        held = any(process.pid == pid for process in drivers.device.processes(copy.gpu))
        held = held or pid in drivers.mps.clients(copy.gpu)
    except DeviceError as error:
        held = held or error.trouble not in NOTHING_HELD
    if held and late:
        raise ClientStuck(f"{copy.id} has exited, but its device memory is still held")
    return not held
