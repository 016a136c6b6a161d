"""The root helper's loop: a Unix socket that takes one change per connection from one user.

One thread that never blocks: a silent or flooding peer occupies one place for a few seconds and delays no one else.
Settings are restored when the helper is stopped, or by its next start after a crash; never because the agent is
silent, since an agent that restarts must find its caps and clocks in force.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import struct
import time
import uuid as uuids
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agents.devices.nvml.originals import Originals
from agents.devices.privileged.changes import ReversibleChanges
from agents.devices.privileged.root_devices import RootDevices
from agents.devices.privileged.rules import refuse
from agents.devices.privileged.setup import (
    CannotServe,
    HelperSetup,
    lock_folder,
    may_speak,
    open_listener,
    refuse_overflow_ids,
)
from agents.devices.privileged.wire import MOST_BYTES, VERSION, Hello, HelperReply, encoder, requests
from agents.seams.device import Trouble

MOST_PEERS = 8
PEER_SECONDS = 2.0  # of a whole connection
REQUESTS_AT_ONCE, REQUESTS_PER_SECOND = (
    64.0,
    32.0,
)  # enough for eight GPUs, each with a clock, a cap and a mode per second
LINES_AT_ONCE, LINES_PER_SECOND = 20.0, 1.0  # of log about refusals
MOST_DRAINED_BYTES = 64 * 1024

log = logging.getLogger(__name__)


class RateLimiter:
    """Allows `most` at once and `per_second` on average. The caller passes the time, which never goes back."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._tokens = most
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Takes one token; False when none is left."""
        self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def serve(place: HelperSetup, board: RootDevices) -> None:
    """Serves until SIGTERM or SIGINT, then restores all settings. Runs in the main thread of its own process."""
    refuse_overflow_ids(place)
    lock = lock_folder(place.folder)
    try:
        changes = ReversibleChanges(board, _originals(place.folder))
        changes.undo_all()  # left by a predecessor that crashed
        with open_listener(place) as listener:
            _Loop(listener, place, changes).run()
        place.socket.unlink(missing_ok=True)
        changes.undo_all()
    finally:
        os.close(lock)


@dataclass(slots=True)
class _Peer:
    connection: socket.socket
    deadline: float
    received: bytearray = field(default_factory=bytearray)


class _Loop:
    def __init__(self, listener: socket.socket, place: HelperSetup, changes: ReversibleChanges) -> None:
        self._listener = listener
        self._place = place
        self._changes = changes
        self._started = uuids.uuid4().hex
        self._peers: dict[int, _Peer] = {}
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._requests = RateLimiter(REQUESTS_AT_ONCE, REQUESTS_PER_SECOND)
        self._lines = RateLimiter(LINES_AT_ONCE, LINES_PER_SECOND)
        self._unsaid = 0

    def run(self) -> None:
        awake, wake = socket.socketpair()
        awake.setblocking(False)
        wake.setblocking(False)
        self._selector.register(awake, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        earlier = signal.set_wakeup_fd(wake.fileno())  # a signal between the check and the wait still wakes the loop
        try:
            while not self._stopping:
                self._turn()
        finally:
            signal.set_wakeup_fd(earlier)
            for number, handler in before.items():
                signal.signal(number, handler)
            for peer in list(self._peers.values()):
                self._part(peer)
            self._selector.close()
            awake.close()
            wake.close()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._seconds_to_next_deadline()):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fd in self._peers:
                self._hear(self._peers[key.fd])
        now = time.monotonic()
        for peer in [peer for peer in self._peers.values() if peer.deadline <= now]:
            self._refuse("a peer sent no whole request in %s s", PEER_SECONDS)
            self._part(peer)

    def _seconds_to_next_deadline(self) -> float | None:
        if not self._peers:
            return None
        return max(0.0, min(peer.deadline for peer in self._peers.values()) - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        if len(self._peers) >= MOST_PEERS:
            # The agent sends its request at once, so the longest connection is not the agent's.
            self._part(next(iter(self._peers.values())))
        peer = _Peer(connection, time.monotonic() + PEER_SECONDS)
        pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ)
        if not may_speak(self._place, uid, gid):
            self._refuse("process %s of user %s, group %s is not allowed", pid, uid, gid)
            self._answer(peer, refuse(Trouble.NO_PERMISSION, f"user {uid} is not allowed"))
        else:
            self._hear(peer)

    def _hear(self, peer: _Peer) -> None:
        try:
            received = peer.connection.recv(MOST_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._part(peer)
            return
        peer.received += received
        line, end, _ = peer.received.partition(b"\n")
        if len(line) > MOST_BYTES:
            self._refuse("a line is longer than %s bytes", MOST_BYTES)
            self._answer(peer, refuse(Trouble.GARBLED, f"a request has at most {MOST_BYTES} bytes"))
        elif end:
            self._answer(peer, self._reply(bytes(line)))

    def _reply(self, line: bytes) -> HelperReply:
        if not self._requests.take(time.monotonic()):
            self._refuse("more than %s requests a second", REQUESTS_PER_SECOND)
            return refuse(Trouble.TIMEOUT, f"more than {REQUESTS_PER_SECOND:.0f} requests a second; try again later")
        try:
            request = requests.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._refuse("not understood: %.200a: %.200a", line, str(error))
            return refuse(Trouble.GARBLED, f"not a request: {error}"[:300])
        if isinstance(request, Hello):
            return HelperReply(ok=True, version=VERSION, started=self._started)
        reply = self._changes.make(request)
        reply.started = self._started
        if reply.ok:
            log.info("%s: before %s, now %s", request, reply.before, reply.applied)
        else:
            self._refuse("%s: %.200a", request, reply.message)
        return reply

    def _answer(self, peer: _Peer, reply: HelperReply) -> None:
        """Sends the reply, which fits into any socket's buffer, so a peer that does not read delays no one."""
        try:
            peer.connection.send(encoder.encode(reply) + b"\n")
            peer.connection.shutdown(socket.SHUT_WR)
            # Closing with unread input would discard the reply.
            drained = 0
            while drained < MOST_DRAINED_BYTES and (more := peer.connection.recv(4096)):
                drained += len(more)
        except OSError:
            pass  # gone, or nothing left to drain
        self._part(peer)

    def _part(self, peer: _Peer) -> None:
        self._selector.unregister(peer.connection)
        del self._peers[peer.connection.fileno()]
        peer.connection.close()

    def _refuse(self, text: str, *values: object) -> None:
        """Logs the refusal, but not so often that a refused peer can fill the disk."""
        if not self._lines.take(time.monotonic()):
            self._unsaid += 1
            return
        if self._unsaid:
            log.warning("%s more refusals were not logged", self._unsaid)
            self._unsaid = 0
        log.warning("refused: " + text, *values)


def _originals(folder: Path) -> Originals:
    try:
        return Originals(folder / "originals.json")
    except (msgspec.MsgspecError, OSError) as error:
        # The file is written atomically, so someone else damaged it. Without it the original settings are unknown.
        raise CannotServe(f"cannot read originals.json in {folder} ({error}); move it away to continue") from error
