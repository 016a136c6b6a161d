"""One step of a copy on its way down: drained, told to go, and only then made to; its memory is seen to be free."""

from __future__ import annotations

from agents.host.stopping import SAVE_SECONDS, TERM_SECONDS, StopSignal, due_signal
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import ClientStuck, NodeDrivers
from agents.seams.device import DeviceError, Trouble
from agents.templates import Filled

FREE_SECONDS = 10.0  # after the process, before its memory must be free
NOBODY_THERE = (Trouble.DOWN, Trouble.FAULT, Trouble.LOST, Trouble.NO_DRIVER)  # nothing is held, nobody harmed


def stop_copy(copy: NodeCopy, filled: Filled | None, hands: NodeDrivers, now: float, alone: bool = False) -> bool:
    """Bring the process to its end; whether it has come, and its memory is free.

    Killing a client of MPS with work in flight can harm all others: first it is asked, then told, then its client
    is terminated, and only when MPS says that this is done is it killed. Raises Stuck when MPS does not say so;
    `alone` on a GPU that is recycled, there is nobody left to be harmed.
    """
    running = copy.running
    if running is None:
        return True
    patience = filled.drain_seconds if filled else 0.0
    waited = now - copy.since
    left = hands.runtime.pids(running)
    if not hands.runtime.alive(running):
        if left:  # its children outlive it: nobody would ever ask them to go
            if not alone:
                _terminate(copy, left, hands)
            hands.runtime.end(running, force=True)
            return False
        return _is_free(copy, hands, waited > patience + SAVE_SECONDS + TERM_SECONDS + FREE_SECONDS)
    if copy.served and filled and filled.drain and waited <= patience:
        hands.talk.ask(copy.port, filled.drain)
        return False
    saves = filled.checkpoint_signal if filled and not copy.served else ""
    match due_signal(waited - patience if copy.served else waited, saves, 0.0 if copy.served else patience):
        case StopSignal.SAVE:
            hands.runtime.tell(running, saves)
        case StopSignal.ASK:
            hands.runtime.end(running, force=False)
        case StopSignal.MAKE:
            if not alone:
                _terminate(copy, left, hands)
            hands.runtime.end(running, force=True)
    return False


def _terminate(copy: NodeCopy, pids: frozenset[int], hands: NodeDrivers) -> None:
    try:
        for pid in sorted(pids & hands.mps.clients(copy.gpu)):
            if not hands.mps.terminate(copy.gpu, pid):
                raise ClientStuck(f"{copy.id} does not end, and MPS did not terminate its client {pid}")
    except DeviceError as error:
        if error.trouble not in NOBODY_THERE:
            raise ClientStuck(f"{copy.id} does not end, and MPS cannot be asked: {error}") from error


def _is_free(copy: NodeCopy, hands: NodeDrivers, late: bool) -> bool:
    """Whether neither MPS nor the driver knows the process any more."""
    assert copy.running is not None
    pid = copy.running.pid
    held = False
    try:
        held = any(process.pid == pid for process in hands.device.processes(copy.gpu))
        held = held or pid in hands.mps.clients(copy.gpu)
    except DeviceError as error:
        held = held or error.trouble not in NOBODY_THERE
    if held and late:
        raise ClientStuck(f"{copy.id} has ended, and what it held on the device is not free")
    return not held
