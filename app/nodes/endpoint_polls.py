"""Gateways that wait for other endpoints: one reading a change for all of them, of the nodes that it is about."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from agents.contract import Assignment, Endpoints, ServiceEndpoints
from app.access import Principal
from app.nodes.detail import NodeDetail
from app.nodes.endpoints import ServiceCopy, filter_tenant, list_copies, list_services
from app.problem import HttpProblem
from app.store.access import tokens
from app.store.database.database import Database, Unavailable
from app.store.database.notices import Notices
from app.store.fleet import endpoints
from app.tokens import UNAUTHORIZED

PAUSE_SECONDS = 1.0
LOOK_SECONDS = 30.0
GATHER_SECONDS = 0.05  # between two readings: a rollout changes many nodes in a row

log = logging.getLogger(__name__)

_assignment = msgspec.json.Decoder(Assignment)


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    """The endpoints as they were read last."""

    read: int = -1  # up to this version of the stream
    told: Endpoints = field(default_factory=lambda: Endpoints(0))  # its version: when they last became others
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class NodeEndpoints:
    """What a node said and was told, as it was read last."""

    stamp: endpoints.Stamp
    copies: tuple[ServiceCopy, ...]


class EndpointPolls:
    """Knows the endpoints, and who waits for others."""

    def __init__(self, database: Database, notices: Notices) -> None:
        self._database = database
        self._notices = notices
        self._known = EndpointSnapshot()
        self._nodes: dict[str, NodeEndpoints] = {}
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begins to follow; called in the event loop that the polls run in."""
        self._task = asyncio.create_task(self._forever())

    async def stop(self) -> None:
        """Ends the following and lets every poll go with nothing new."""
        self._stopping = True
        self._release()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self, who: Principal, after: int, seconds: float, service: str = "") -> bytes | None:
        """The endpoints, of one service or all, once any are newer than `after`; None when time is up."""
        if who.expires_at is not None:
            seconds = min(seconds, max(0.0, (who.expires_at - datetime.now(UTC)).total_seconds()))
        until = time.monotonic() + seconds
        token_version = self._notices.current("token")
        if self._known.read < max(after, self._notices.current("endpoint")):
            await self._read()
        while True:
            changed, known = self._changed, self._known
            # Above all that there is: the database was restored, and what it says counts.
            if known.told.version > after or after > known.read:
                break
            left = until - time.monotonic()
            if left <= 0 or self._stopping:
                return None
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return None
        if self._notices.current("token") != token_version:
            await self._insist_on_life(who)
        return _body(known, who, service)

    async def _insist_on_life(self, who: Principal) -> None:
        live = await run_in_threadpool(self._database.read, lambda connection: tokens.live_ids(connection, [who.id]))
        if who.id not in live:
            raise HttpProblem("unauthorized", "this token was revoked", headers=UNAUTHORIZED)

    async def _forever(self) -> None:
        while True:
            try:
                version = await self._notices.wait("endpoint", max(self._known.read, 0), LOOK_SECONDS)
                if version != self._known.read:
                    await self._read()
                await asyncio.sleep(GATHER_SECONDS)
            except Unavailable as error:
                log.warning("polls_wait_for_database", extra={"stream": "endpoint", "error": str(error)})
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception:
                log.exception("polls_failed", extra={"stream": "endpoint"})
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self) -> None:
        async with self._reading:
            read, nodes, told = await run_in_threadpool(self._database.read, self._look)
            before = self._known
            version = read if told != before.told.services or not before.body else before.told.version
            self._nodes = nodes
            if version == before.told.version and before.body:
                self._known = EndpointSnapshot(read, before.told, before.body)
                return
            fresh = Endpoints(version, told)
            self._known = EndpointSnapshot(read, fresh, msgspec.json.encode(fresh))
            self._release()

    def _release(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _look(self, connection: Connection) -> tuple[int, dict[str, NodeEndpoints], tuple[ServiceEndpoints, ...]]:
        """One consistent moment; of nodes that say and are told the same as before, nothing is read."""
        version = endpoints.version(connection)
        stamps = endpoints.stamps(connection)
        nodes = {node: held for node, held in self._nodes.items() if stamps.get(node) == held.stamp}
        news = stamps.keys() - nodes.keys()
        for node, detail, body in endpoints.of_nodes(connection, news) if news else ():
            nodes[node] = NodeEndpoints(stamps[node], _placed(node, detail, body))
        limits = endpoints.limits(connection)
        return version, nodes, list_services((copy for heard in nodes.values() for copy in heard.copies), limits)


def _placed(node: str, detail: object, body: str | None) -> tuple[ServiceCopy, ...]:
    said = msgspec.convert(detail or {}, NodeDetail)
    return list_copies(node, said, _assignment.decode(body) if body else None)


def _body(known: EndpointSnapshot, who: Principal, service: str) -> bytes:
    if not who.tenant and not service:
        return known.body
    told: Sequence[ServiceEndpoints] = known.told.services
    if who.tenant:
        told = filter_tenant(told, who.tenant)
    if service:
        told = [one for one in told if one.service == service]
    return msgspec.json.encode(Endpoints(known.told.version, tuple(told)))
