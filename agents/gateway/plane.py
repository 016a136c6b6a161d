"""Connects a gateway to the control plane: follows its endpoints, and sends request counts once a second.

Without the control plane the last endpoints stay in force (I4); totals are sent when it is back, so nothing is lost.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from agents.contract.addresses import BadAddress, CopyAddress, parse_address
from agents.contract.gateways import (
    MOST_LEFT_OUT,
    CountsTaken,
    Endpoints,
    GatewayCounts,
    LeftOutRoute,
    ServiceCounts,
)
from agents.gateway.following import EndpointTaker, follow_endpoints
from agents.gateway.wire import SidecarCounts
from agents.talk.link import Link, LinkError, decode_answer

POLL_SECONDS = 30
ANSWER_SECONDS = 15.0
PUSH_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 3.0  # gateways are few, and hand-overs wait for them after an outage
MOST_BYTES = 2 << 20  # the server accepts no more
MOST_LOG_LINES = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlPlaneAddress:
    """The control plane's address, and this gateway's name and token there."""

    url: str
    token_file: Path
    name: str
    ca_file: str = ""
    loopback: bool = False  # all nodes are this machine
    listen: str = "/"  # where this gateway itself listens: a path, or HOST:PORT

    def link(self) -> Link:
        """Opens a connection with the current token."""
        words = self.token_file.read_text().split()
        if not words:
            raise ValueError(f"the file {self.token_file} has no token")
        return Link(self.url, words[-1], self.ca_file)


class PlaneClient:
    """Runs two threads next to what puts endpoints in force until closed."""

    def __init__(self, taker: EndpointTaker, server: ControlPlaneAddress) -> None:
        self._taker = taker
        self._began = datetime.now(UTC).isoformat()
        self._server = server
        self._closing = threading.Event()
        self._version = 0  # of the endpoints taken
        self._in_force = 0
        self._sequence = 0
        self._is_newest = False
        self.following = ""  # why endpoints cannot be followed; empty while they are
        self.pushing = ""
        self._threads = [
            threading.Thread(target=self._repeat, args=("following", self._follow_once), name="follower", daemon=True),
            threading.Thread(target=self._repeat, args=("pushing", self._push_once), name="pusher", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stops both threads; a poll that still waits changes nothing any more."""
        self._closing.set()

    def _follow_once(self, link: Link) -> None:
        path = f"/api/v1/endpoints?after={self._version}&waitSeconds={POLL_SECONDS}"
        answer = link.request("GET", path, None, POLL_SECONDS + ANSWER_SECONDS)
        if answer.status == 204 or self._closing.is_set():
            return
        endpoints = decode_answer(answer.body, Endpoints)
        has_copies = any(service.copies for service in endpoints.services)
        if not has_copies and self._taker.is_routing():
            # More likely an emptied database than an emptied fleet; copies really gone fail their checks anyway.
            log.error("the control plane reports no copy of any service; its earlier endpoints stay in force")
            self._version = endpoints.version
            return
        wanted = follow_endpoints(endpoints, self._server.loopback, self._own_addresses())
        for route in wanted.left_out[:MOST_LOG_LINES]:
            log.warning("copy %s of node %s is not routed: %s", route.copy, route.node, route.reason)
        self._taker.follow(wanted)
        self._version = endpoints.version

    def _own_addresses(self) -> frozenset[CopyAddress]:
        """Returns where the control plane and this sidecar listen: no node may lead requests there."""
        parts = urlsplit(self._server.url)
        found = _resolve(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        if not self._server.listen.startswith("/"):
            host, _, port = self._server.listen.rpartition(":")
            found |= _resolve(host.strip("[]"), int(port)) | _resolve(socket.gethostname(), int(port))
        return frozenset(found)

    def _push_once(self, link: Link) -> None:
        known, counted = self._taker.endpoints_in_force(), self._taker.counts()
        self._in_force = self._in_force if known.version is None else known.version
        left_out = known.left_out[:MOST_LEFT_OUT]
        if counted is None:
            counts = GatewayCounts(
                self._began, self._sequence, endpoints=self._in_force, left_out=left_out, uncounted=True
            )
        else:
            counts = build_counts(counted, self._sequence, self._in_force, left_out)
        body = msgspec.json.encode(counts)
        if len(body) > MOST_BYTES:  # latencies can be left out; totals cannot
            services = tuple(msgspec.structs.replace(service, latency_counts=()) for service in counts.services)
            body = msgspec.json.encode(msgspec.structs.replace(counts, services=services))
        answer = link.request("PUT", f"/api/v1/gateways/{self._server.name}/counts", body, ANSWER_SECONDS)
        taken = decode_answer(answer.body, CountsTaken).sequence
        if taken > self._sequence and self._is_newest:
            log.error("another process reports as gateway %s: each gateway needs its own name", self._server.name)
        self._is_newest = taken <= self._sequence
        self._sequence = taken + 1
        self._closing.wait(PUSH_SECONDS if self._is_newest else 0)

    def _repeat(self, what: str, once: Callable[[Link], None]) -> None:
        link: Link | None = None
        pause = 1.0
        while not self._closing.is_set():
            try:
                link = link or self._server.link()
                once(link)
                if getattr(self, what):
                    log.info("%s the control plane again", what)
                setattr(self, what, "")
                pause = 1.0
            except Exception as error:  # whatever the answer, this thread goes on
                if not isinstance(error, LinkError | OSError | ValueError):
                    log.exception("%s: an answer could not be processed", what)
                if link is not None:
                    link.close()
                link = None  # the token may have changed
                if str(error) != getattr(self, what):
                    log.warning("%s: %s", what, error)
                setattr(self, what, str(error))
                wanted = max(pause, getattr(error, "retry_seconds", 0.0))
                self._closing.wait(wanted * (0.5 + random.random()))  # noqa: S311 (jitter)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        if link is not None:
            link.close()


def _resolve(host: str, port: int) -> set[CopyAddress]:
    found = set[CopyAddress]()
    with suppress(OSError, BadAddress):
        for _, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            literal = str(address[0]).partition("%")[0]
            found.add(parse_address(f"[{literal}]:{port}" if ":" in literal else f"{literal}:{port}"))
    return found


def build_counts(
    counts: SidecarCounts, sequence: int, endpoints: int, left_out: tuple[LeftOutRoute, ...] = ()
) -> GatewayCounts:
    """Returns the totals of every service that was ever requested."""
    services = tuple(
        ServiceCounts(
            counted.service,
            counted.requests,
            counted.errors,
            counted.shed,
            _trim_zeros(counted.latency_counts),
            counted.open,
            counted.timed,
            counted.late,
            counted.windows,
            counted.tokens,
            counted.lengths,
        )
        for counted in counts.counted
        if not counted.copy and (counted.requests or counted.open)
    )
    return GatewayCounts(counts.began, sequence, services, counts.lost_lines, endpoints, left_out)


def _trim_zeros(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the counts without trailing zeros."""
    length = len(counts)
    while length and not counts[length - 1]:
        length -= 1
    return counts[:length]
