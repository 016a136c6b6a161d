"""The sidecar and the control plane: its endpoints are followed, and what was counted is said once a second.

Without the control plane all goes on as it was told last (I4); totals are said when it is back, and nothing is lost.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.contract import CountsTaken, Endpoints, GatewayCounts, ServiceCounts
from agents.gateway import desired
from agents.gateway.following import follow_endpoints
from agents.gateway.sidecar import Sidecar, Troubles
from agents.gateway.wire import DeclaredRoutes, SidecarCounts
from agents.talk.link import Link, LinkError, decode_answer

POLL_SECONDS = 30
ANSWER_SECONDS = 15.0
PUSH_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
MOST_BYTES = 2 << 20  # the server takes no more
MOST_SAID = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlPlaneAddress:
    """Where the control plane is, and as whom it is spoken to."""

    url: str
    token_file: Path
    name: str
    ca_file: str = ""
    loopback: bool = False  # whether all nodes are this machine

    def link(self) -> Link:
        """A connection with the token as it is now."""
        words = self.token_file.read_text().split()
        if not words:
            raise ValueError(f"there is no token in {self.token_file}")
        return Link(self.url, words[-1], self.ca_file)


class PlaneClient:
    """Two threads beside the sidecar, until closed."""

    def __init__(self, sidecar: Sidecar, server: ControlPlaneAddress) -> None:
        self._sidecar = sidecar
        self._server = server
        self._closing = threading.Event()
        self._version = 0  # of the endpoints that were taken
        self._in_force = 0
        self._sequence = 0
        self._heard_as_newest = False
        self.following = ""  # why they are not followed; empty while they are
        self.pushing = ""
        self._threads = [
            threading.Thread(target=self._repeat, args=("following", self._follow_once), name="follower", daemon=True),
            threading.Thread(target=self._repeat, args=("pushing", self._push_once), name="pusher", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """The poll may wait for a while yet, and changes nothing any more."""
        self._closing.set()

    def _follow_once(self, link: Link) -> None:
        path = f"/api/v1/endpoints?after={self._version}&waitSeconds={POLL_SECONDS}"
        answer = link.request("GET", path, None, POLL_SECONDS + ANSWER_SECONDS)
        if answer.status == 204 or self._closing.is_set():
            return
        told = decode_answer(answer.body, Endpoints)
        if not told.services and any(map(is_followed_with_routes, self._sidecar.sources().items())):
            # A database that was emptied, sooner than a fleet: what is gone fails its checks, too.
            log.error("the control plane knows of no service at all; what it said before stands")
            self._version = told.version
            return
        wanted = follow_endpoints(told, self._server.loopback)
        for line in wanted.left_out[:MOST_SAID]:
            log.warning("not routed: %s", line)
        try:
            self._sidecar.follow(wanted.sources, wanted.limits)
        except Troubles as error:
            log.warning("what the control plane says is kept, and not in force yet: %s", error)
        self._version = told.version

    def _push_once(self, link: Link) -> None:
        if self._sidecar.condition().in_force:
            self._in_force = self._version
        told = counts_of(self._sidecar.counts(), self._sequence, self._in_force)
        body = msgspec.json.encode(told)
        if len(body) > MOST_BYTES:  # how many is needed before how fast
            services = tuple(msgspec.structs.replace(one, latency_counts=()) for one in told.services)
            body = msgspec.json.encode(msgspec.structs.replace(told, services=services))
        answer = link.request("PUT", f"/api/v1/gateways/{self._server.name}/counts", body, ANSWER_SECONDS)
        taken = decode_answer(answer.body, CountsTaken).sequence
        if taken > self._sequence and self._heard_as_newest:
            log.error("somebody else speaks as gateway %s: each gateway has a name of its own", self._server.name)
        self._heard_as_newest = taken <= self._sequence
        self._sequence = max(self._sequence, taken) + 1
        self._closing.wait(PUSH_SECONDS if self._heard_as_newest else 0)

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
            except Exception as error:  # whatever the other side says, this thread goes on
                if not isinstance(error, LinkError | OSError | ValueError):
                    log.exception("%s: an answer was not understood", what)
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


def is_followed_with_routes(source: tuple[str, DeclaredRoutes]) -> bool:
    """Whether the control plane has said of a node that it has copies."""
    return desired.is_followed(source[0]) and bool(source[1].routes)


def counts_of(counts: SidecarCounts, sequence: int, endpoints: int) -> GatewayCounts:
    """The totals of every service that was ever asked for."""
    services = tuple(
        ServiceCounts(
            one.service,
            one.requests,
            one.errors,
            one.shed,
            _without_zeros(one.latency_counts),
            one.open,
            one.timed,
            one.late,
        )
        for one in counts.counted
        if not one.copy and (one.requests or one.open)
    )
    return GatewayCounts(counts.began, sequence, services, counts.lost_lines, endpoints)


def _without_zeros(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Trailing ones may be left out."""
    length = len(counts)
    while length and not counts[length - 1]:
        length -= 1
    return counts[:length]
