"""What a proposed division says, as the API spells it; known also where no solvers are."""

from __future__ import annotations

from typing import TypedDict

from app.manifests.model import Free

TYPES_FILE = "_types.yaml"  # what is applied before the first node; no node has such a name


class ProposedDocumentWire(TypedDict):
    """A manifest to apply once its part of the order is done."""

    apiVersion: str
    kind: str
    metadata: dict[str, str]
    spec: Free


class DrainedServiceWire(TypedDict):
    """Copies of a service that leave a node, and the nodes where others start before, by the plan of today."""

    service: str
    copies: int
    to: list[str]


class LackingRateWire(TypedDict):
    """Requests a second of a service that nothing would carry while the node is divided."""

    service: str
    ratePerSecond: float


class DivisionCommandWire(TypedDict):
    """A command that an operator types; `on` is the node, or empty for any machine with the client."""

    on: str
    command: str


class DivisionStepWire(TypedDict):
    """A node to divide: what leaves it, the commands in their order, and what is there afterwards."""

    node: str
    gpus: int
    profile: str
    profileId: int
    devicesPerGpu: int
    devices: int
    gpuType: str  # of the devices
    memoryGib: float  # of one
    smCount: int  # of one
    drained: list[DrainedServiceWire]
    lacking: list[LackingRateWire]
    isKnown: bool  # false: there was no time to look where its copies go
    commands: list[DivisionCommandWire]
    checks: list[str]
    manifest: ProposedDocumentWire


class DeviceServiceWire(TypedDict):
    """A service on the devices, and why it costs less there."""

    service: str
    copies: int
    reason: str


class LeftOutNodesWire(TypedDict):
    """How many nodes could not be divided, and why."""

    nodes: int
    reason: str


class DivisionWire(TypedDict):
    """Which nodes' GPUs to divide into MIG devices, in their order; no steps where that saves nothing."""

    savesPerHour: float
    undividedPerHour: float
    dividedPerHour: float
    servesMorePerSecond: float  # requests that the undivided fleet leaves unserved
    bound: float | None  # no division of these nodes costs less
    gap: float | None
    steps: list[DivisionStepWire]
    manifests: list[ProposedDocumentWire]  # the devices' types and profiles, to apply before the first node
    services: list[DeviceServiceWire]
    leftOut: list[LeftOutNodesWire]
    refused: list[str]
    sentences: list[str]
