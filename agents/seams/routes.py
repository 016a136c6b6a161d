"""The interface to the gateway: which copies get requests, and when a copy has answered its last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from agents.contract.reports import Answer, Copy


@dataclass(frozen=True, slots=True)
class Route:
    """The wanted route of one copy."""

    copy: str
    service: str  # tenant/name
    address: str  # host:port
    weight: float  # above 0: its part of the service's requests, relative to copies on all nodes
    drained: bool = False  # no new requests; open ones are finished
    paths: tuple[str, ...] | None = None  # that callers may use; None: not known


@dataclass(frozen=True, slots=True)
class RouteState:
    """The gateway's present state of one copy."""

    copy: str
    ready: bool  # gets new requests
    open_requests: int  # being answered or queued
    waits_for: str = ""  # why a drained copy still gets requests, in a sentence, once that has taken unusually long


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The declared routes of this node that the gateway has in force."""

    routes: tuple[RouteState, ...]

    def of(self, copy: str) -> RouteState | None:
        return next((route for route in self.routes if route.copy == copy), None)


class RoutesAway(Exception):
    """The gateway did not acknowledge; its earlier routes stay in force."""


class Routes(Protocol):
    """A gateway that puts this node's declarations in force."""

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        """Declares all routes of this node; others are deleted. In force when it returns.

        Raises RoutesAway without an acknowledgement; the caller repeats the declaration later.
        """


class StoredReports(Protocol):
    """Learns which copies gateways can know, where they know them only from this node's stored reports."""

    def note_stored(self, copies: Collection[Copy], answer: Answer) -> None:
        """Notes that the control plane has just stored a report with these copies, and with no others."""

    def next_report_seconds(self, longest: float) -> float:
        """Returns the seconds until the next report is due, at most `longest`."""
