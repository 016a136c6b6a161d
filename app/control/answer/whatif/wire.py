"""What a what-if says, as the API spells it; known also where no solvers are."""

from __future__ import annotations

from typing import NotRequired, TypedDict, final

from app.control.answer.division.wire import DivisionWire
from app.control.answer.explain.difference_wire import ServiceDifferenceWire
from solvers.planning.wire import PlanBodyWire, PlanChangesWire, PlanUnservedWire, ReleasableNodeWire


class WhatIfSideWire(TypedDict):
    """What a plan costs an hour and uses."""

    cost: float
    resourceCost: float
    unservedCost: float
    bound: float | None
    gpus: int
    instances: int
    unserved: int
    unservedPerSecond: float
    method: str


class PlanInForceWire(TypedDict):
    """What the plan in force costs at today's rates; zeros without a plan."""

    resourceCost: float
    unservedPerSecond: float
    gpus: int
    instances: int


class WhatIfServiceSideWire(TypedDict):
    """What a service needs and has."""

    instances: int
    ratePerSecond: float
    unservedPerSecond: float
    sloMs: float
    latencyMs: float
    costPerHour: float


class WhatIfServiceWire(TypedDict):
    """A service before and after; null where it does not exist."""

    service: str
    before: WhatIfServiceSideWire | None
    after: WhatIfServiceSideWire | None


class ComparedPlansWire(TypedDict):
    """Two plans: what the second costs more, moves, and does to services."""

    before: WhatIfSideWire
    after: WhatIfSideWire
    costDelta: float
    changes: PlanChangesWire
    churnCost: float
    services: list[WhatIfServiceWire]
    servicesLeftOut: int
    unserved: list[PlanUnservedWire]
    releasable: list[ReleasableNodeWire]


class MovePointWire(TypedDict):
    """The cheapest plan found that moves at most so many other services than those of the change; null: any number."""

    most: int | None
    moved: list[str]  # other services that it moves
    resourceCost: float
    unservedPerSecond: float
    savesPerHour: float  # of what GPUs cost where no other service moves
    churnCost: float
    changes: PlanChangesWire
    services: list[ServiceDifferenceWire]  # that it changes, each with the reason


class ObjectivePointWire(TypedDict):
    """A plan between money, energy, carbon and accuracy."""

    best: list[str]
    weights: dict[str, float]
    moneyPerHour: float
    gpusPerHour: float
    energyKwh: float
    carbonKg: float | None
    accuracy: float | None
    gpus: int
    unservedPerSecond: float
    bound: float | None


class MarginSideWire(TypedDict):
    """What a service is planned for at a risk, and the margin that it has learned for it."""

    risk: float
    margin: float
    ratePerSecond: float


class MarginChangeWire(TypedDict):
    """A service whose risk is another one; margins are learned from so many hours."""

    service: str
    before: MarginSideWire
    after: MarginSideWire
    knownHours: int


class NotKeptServiceWire(TypedDict):
    """A service whose promise cannot be kept, and why."""

    service: str
    reason: str


class RiskPriceWire(TypedDict):
    """What the GPUs of the cheapest plan cost an hour at a risk of the Policy, and the rates that it is made for."""

    risk: float
    resourceCost: float
    plannedPerSecond: float
    unservedPerSecond: float


class SloAmountWire(TypedDict):
    """Money an hour, for GPUs and for what is unserved."""

    gpus: float
    unserved: float


class PercentilePriceWire(TypedDict):
    """What an SLO costs an hour at a percentile; `isMeasured` if enough requests are known to tell that it is kept."""

    percentile: float
    costsPerHour: SloAmountWire
    isMeasured: bool


class LatencyPriceWire(TypedDict):
    """What an SLO of another latency would cost an hour."""

    sloMs: float
    costsPerHour: SloAmountWire


class SloPriceWire(TypedDict):
    """What an SLO costs an hour; null where it was not found out. Others are priced of services that are named."""

    service: str
    sloMs: float
    percentile: float
    paidPerHour: float  # now, for its copies in the plan in force; 0 without any
    latencies: NotRequired[list[LatencyPriceWire]]
    percentiles: NotRequired[list[PercentilePriceWire]]
    costsPerHour: SloAmountWire | None
    shorterAddsPerHour: SloAmountWire | None
    longerSavesPerHour: SloAmountWire | None


@final
class WhatIfAnswerWire(ComparedPlansWire, TypedDict):
    """The best plan for now against the best plan with the change; nothing is stored."""

    inForce: PlanInForceWire
    seconds: float
    notKept: list[NotKeptServiceWire]
    sentences: list[str]
    margins: NotRequired[list[MarginChangeWire]]
    riskPrices: NotRequired[list[RiskPriceWire]]
    sloPrices: NotRequired[list[SloPriceWire]]
    notPriced: NotRequired[int]
    front: NotRequired[list[ObjectivePointWire]]
    division: NotRequired[DivisionWire]
    plan: NotRequired[PlanBodyWire]
    leastChange: NotRequired[list[MovePointWire]]  # from no other service that moves to any number


@final
class NoComparison(TypedDict):
    """Why there is no comparison; `refused` if the question was wrong."""

    failed: str
    refused: bool
