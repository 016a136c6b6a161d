"""Answers gateways that wait for changed endpoints: one read per change for all of them, of the changed nodes only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection

from agents.contract.addresses import IpNetwork
from agents.contract.assignments import Assignment
from agents.contract.gateways import Endpoints
from app.access import Principal
from app.nodes.detail import NodeDetail
from app.nodes.endpoints import NodeCopies, list_copies, list_endpoints, select_services
from app.nodes.node_lane import NodeLane
from app.nodes.refused_copies import record_refused
from app.store.database.database import Unavailable
from app.store.database.notices import Notices
from app.store.fleet import endpoints
from app.tokens import Authenticator, explain_revocation

PAUSE_SECONDS = 1.0
RECHECK_SECONDS = 30.0
FOLLOWED_SECONDS = 120.0  # since a gateway was last heard of
GATHER_SECONDS = 0.05  # between two reads: a rollout changes many nodes in a row

log = logging.getLogger(__name__)

_assignment = msgspec.json.Decoder(Assignment)


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    """The endpoints as of the last read."""

    read: int = -1  # up to this version of the stream
    endpoints: Endpoints = field(default_factory=lambda: Endpoints(0))  # with the version of their last change
    body: bytes = b""
    older: int = -1  # the last version at which this server has read others

    def reach(self, version: int) -> int:
        """Returns up to which version of the stream endpoints of this version are current; 0 before the first read."""
        return max(0, self.read) if version >= self.endpoints.version else version

    def has_changed_since(self, version: int, newest: int) -> bool | None:
        """Returns whether endpoints have changed from this version to the newest; None if this server cannot tell.

        Another server may give the same endpoints an earlier version: they surely differ from the older ones only.
        """
        if self.read >= newest and version >= self.endpoints.version:
            return False
        return True if version <= self.older else None


@dataclass(frozen=True, slots=True)
class NodeEndpoints:
    """The copies of a node as of the last read."""

    stamp: endpoints.Stamp
    copies: NodeCopies


class EndpointPolls:
    """Keeps the current endpoints, and the gateways that wait for newer ones."""

    def __init__(
        self, lane: NodeLane, notices: Notices, authenticator: Authenticator, networks: Sequence[IpNetwork]
    ) -> None:
        self._lane = lane
        self._networks = networks  # that copies may be in; none: any
        self._notices = notices
        self._authenticator = authenticator
        self._known = EndpointSnapshot()
        self._nodes: dict[str, NodeEndpoints] = {}
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._followed_until = 0.0  # monotonic

    @property
    def known(self) -> EndpointSnapshot:
        return self._known

    def start(self) -> None:
        """Starts to follow changes; called in the event loop that the polls run in."""
        self._task = asyncio.create_task(self._forever())

    async def stop(self) -> None:
        """Stops, and ends every poll with nothing new."""
        self._stopping = True
        self._release()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def note_gateway(self) -> None:
        """Notes that a gateway follows the endpoints, of this server or of another one."""
        self._followed_until = max(self._followed_until, time.monotonic() + FOLLOWED_SECONDS)

    async def wait(self, who: Principal, after: int, seconds: float, service: str = "") -> bytes | None:
        """Returns the endpoints, of one service or all, once they are newer than `after`; None when the time is up."""
        if who.expires_at is not None:
            seconds = min(seconds, max(0.0, (who.expires_at - datetime.now(UTC)).total_seconds()))
        until = time.monotonic() + seconds
        self._followed_until = until + FOLLOWED_SECONDS
        if self._known.read < max(after, self._notices.current("endpoint")):
            await self._read()
        while True:
            changed, known = self._changed, self._known
            # A version above the newest: the database was restored, and its content counts.
            if known.endpoints.version > after or after > known.read:
                break
            left = until - time.monotonic()
            if left <= 0 or self._stopping:
                return None
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return None
        if not await self._lane.is_current(self._authenticator, who):
            raise explain_revocation()
        return _body(known, who, service)

    async def _forever(self) -> None:
        """Reads what changes while there are gateways: for nobody, reading ten thousand nodes again is waste."""
        seen = 0
        while True:
            is_followed = time.monotonic() < self._followed_until
            try:
                if is_followed:
                    seen = await self._notices.wait("endpoint", max(self._known.read, 0), RECHECK_SECONDS)
                    if seen != self._known.read:
                        await self._read()
                else:
                    seen = await self._notices.wait("endpoint", seen, PAUSE_SECONDS)
                await asyncio.sleep(GATHER_SECONDS)
            except Unavailable as error:
                log.warning("polls_wait_for_database", extra={"stream": "endpoint", "error": str(error)})
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception:
                log.exception("polls_failed", extra={"stream": "endpoint"})
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self) -> None:
        async with self._reading:
            read, nodes, found = await self._lane.read(self._read_all)
            before = self._known
            refused = {
                node: known.copies.refused
                for node, known in nodes.items()
                if known.copies.refused and known is not self._nodes.get(node)
            }
            self._nodes = nodes
            if before.body and msgspec.structs.replace(found, version=before.endpoints.version) == before.endpoints:
                self._known = EndpointSnapshot(read, before.endpoints, before.body, before.older)
            else:
                self._known = EndpointSnapshot(read, found, msgspec.json.encode(found), before.read)
                self._release()
            if refused:
                await record_refused(self._lane, refused)

    def _release(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _read_all(self, connection: Connection) -> tuple[int, dict[str, NodeEndpoints], Endpoints]:
        """Reads one consistent moment, and nothing of nodes whose reports and assignments have not changed."""
        version = endpoints.version(connection)
        stamps = endpoints.stamps(connection)
        nodes = {
            node: held
            for node, held in self._nodes.items()
            # What is not assigned any more is looked up again: it is routed for a day only.
            if stamps.get(node) == held.stamp and all(copy.assigned is not None for copy in held.copies.copies)
        }
        changed = stamps.keys() - nodes.keys()
        for row in endpoints.read_copies(connection, changed) if changed else ():
            nodes[row.node] = NodeEndpoints(stamps[row.node], self._place(row))
        limits, declared = endpoints.read_limits(connection), endpoints.read_declared(connection)
        copies = (copy for known in nodes.values() for copy in known.copies.copies)
        return version, nodes, list_endpoints(version, copies, limits, declared)

    def _place(self, row: endpoints.CopiesOfNode) -> NodeCopies:
        stored = msgspec.convert(row.detail or {}, NodeDetail)
        assignment = _assignment.decode(row.body) if row.body else None
        return list_copies(row.node, stored, assignment, row.services, self._networks)


def _body(known: EndpointSnapshot, who: Principal, service: str) -> bytes:
    if not who.tenant and not service:
        return known.body
    return msgspec.json.encode(select_services(known.endpoints, who.tenant or "", service))
