"""The parts that a node is built on: its drivers, its gateway, and what it may start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from agents.admission.metadata import MetadataWall
from agents.admission.reading import AllowList
from agents.keeper.drivers import NodeDrivers
from agents.node.copy_counters import GatewayCounters
from agents.node.gpu_holders import GpuHolders
from agents.seams.routes import Routes, StoredReports
from agents.templates.reading import Template


class NodeNotices(Protocol):
    """Learns what others are about to do with this node."""

    deadline: datetime | None  # when it is taken back
    drained: bool  # who runs the cluster wants it empty

    @property
    def away(self) -> str:
        """Why nothing is learnt now; empty where it is."""

    def look(self) -> bool:
        """Looks once; returns whether anything has changed."""

    def watch(self, stopping: threading.Event, on_change: Callable[[], None]) -> None:
        """Looks again and again until `stopping` is set."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts that a node is built on."""

    drivers: NodeDrivers
    routes: Routes
    templates: Mapping[str, Template]
    counters: GatewayCounters | None = None  # of the gateway; None: copies count themselves
    host: str = "127.0.0.1"  # where the gateway reaches the copies
    followers: StoredReports | None = None  # gateways that know this node's copies from its reports only
    holders: GpuHolders | None = None  # of a cluster's node; None: nobody else gives its GPUs out
    notices: NodeNotices | None = None  # that the node will be drained or taken back
    allow_list: AllowList = field(default_factory=AllowList)  # of users' own images and commands
    runtime_kind: str = "process"  # or docker, or pods
    checkpoints: Path | None = None  # where jobs save; None: they cannot
    metadata: MetadataWall | None = None  # keeps own runtimes from the cloud's credentials; None: there are none
