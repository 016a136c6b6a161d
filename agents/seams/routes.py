"""The seam to the gateway: which copies get requests, and when they have got their last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Route:
    """One copy as the gateway shall treat it."""

    copy: str
    service: str  # tenant/name
    address: str  # host:port
    weight: float  # above 0: what of the service's requests it shall get, against its siblings on all nodes
    drained: bool = False  # no new requests; those it has are finished


@dataclass(frozen=True, slots=True)
class RouteState:
    """One copy as the gateway treats it."""

    copy: str
    ready: bool  # takes new requests
    open_requests: int  # being answered or queued


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What the gateway has in force of what this node declared."""

    routes: tuple[RouteState, ...]

    def of(self, copy: str) -> RouteState | None:
        return next((route for route in self.routes if route.copy == copy), None)


class RoutesAway(Exception):
    """The gateway did not acknowledge; whatever it had in force is in force."""


class Routes(Protocol):
    """A gateway that converges on what this node declares."""

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        """All routes of this node, as they shall be: one that is not named is deleted. In force when it returns.

        Raises RoutesAway when no acknowledgement came; the caller says the same again later.
        """
