"""A gateway for all nodes of the campaign: holds the routes in force, and can stop answering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.seams.routes import Acknowledged, Route, RoutesAway, RouteState


@dataclass
class CampaignGateway:
    """The routes in force, by node. While it is away it keeps them, and acknowledges nothing."""

    routes: dict[str, tuple[Route, ...]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)  # the nodes that cannot reach it


class NodeRoutes:
    """One node's way to the gateway. `answers` tells whether a copy's process answers."""

    def __init__(self, gateway: CampaignGateway, node: str, answers: Callable[[str], bool]) -> None:
        self._gateway = gateway
        self._node = node
        self._answers = answers

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        if self._node in self._gateway.away:
            raise RoutesAway("the campaign's gateway is away")
        self._gateway.routes[self._node] = tuple(routes)
        return Acknowledged(
            tuple(RouteState(route.copy, not route.drained and self._answers(route.copy), 0) for route in routes)
        )
