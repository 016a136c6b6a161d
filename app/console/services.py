"""Lists services as rows: troubled ones first, filtered by name, page by page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.api.answers.overview import OverviewServiceWire
from app.console.boxes import assign_hues
from app.console.data import ConsoleData, is_late
from app.console.page_request import ServicesQuery
from app.control.domain.events import Reason
from solvers.planning.wire import PlanUnservedWire

PAGE_ROWS = 40


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """A service with its SLO, its attainment and its cost."""

    name: str
    hue: str
    state: str  # unserved, late, kept, quiet
    status: str  # the state in words
    rate: float | None
    planned: float
    unserved: float
    attained: float | None
    percentile: float
    slo_ms: float  # of a language model the time to the first token
    tpot_ms: float | None  # of a language model: of each token after the first
    latency_ms: float | None
    burn: float | None
    instances: int
    routed: int  # copies that answer
    silent: int  # copies that did when their nodes, now silent, last reported
    price: float | None
    reason: str
    relaxation: str
    short: str  # why the fleet is too small for its minInstances or availability now

    @property
    def tenant(self) -> str:
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class ServicePage:
    """A page of services, and the number of services by state."""

    rows: tuple[ServiceRow, ...]
    found: int
    page: int
    pages: int
    counts: Mapping[str, int]


ORDER = ("unserved", "late", "kept", "quiet")
SORTED: Mapping[str, Callable[[ServiceRow], tuple[object, ...]]] = {
    "worst": lambda row: (ORDER.index(row.state), -row.unserved, -(row.burn or 0.0), row.name),
    "name": lambda row: (row.name,),
    "rate": lambda row: (-(row.rate or 0.0), row.name),
    "attained": lambda row: (row.attained is None, (row.attained or 0.0) - row.percentile / 100, row.name),
    "instances": lambda row: (-row.instances, row.name),
    "cost": lambda row: (-(row.price or 0.0), row.name),
}


def make_rows(data: ConsoleData) -> list[ServiceRow]:
    """Returns every service."""
    why = {line["service"]: line for line in data.body["unserved"]}
    held = data.body["heldBack"]
    short = {line["service"]: line["message"] for line in held if line["reason"] == Reason.TOO_FEW_GPUS}
    hues = assign_hues(tuple(service["service"] for service in data.services))
    return [
        _row(service, hues[service["service"]], why.get(service["service"]), short.get(service["service"], ""))
        for service in data.services
    ]


def make_page(found: Sequence[ServiceRow], query: ServicesQuery) -> ServicePage:
    """Returns the requested page."""
    wanted = [row for row in found if query.find in row.name.lower() and query.state in ("", row.state)]
    wanted.sort(key=SORTED[query.sort])
    pages = max(1, -(-len(wanted) // PAGE_ROWS))
    page = min(query.page, pages)
    shown = tuple(wanted[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    return ServicePage(shown, len(wanted), page, pages, count_states(found))


def count_states(rows: Sequence[ServiceRow]) -> dict[str, int]:
    return {state: sum(row.state == state for row in rows) for state in ORDER}


def count_served(rows: Sequence[ServiceRow]) -> int:
    """Returns how many services have their whole load planned and a copy that answers."""
    return sum(row.routed > 0 and row.state != "unserved" for row in rows)


def _row(service: OverviewServiceWire, hue: str, why: PlanUnservedWire | None, short: str) -> ServiceRow:
    state, status = _state(service)
    return ServiceRow(
        name=service["service"],
        hue=hue,
        state=state,
        status=status,
        rate=service["ratePerSecond"],
        planned=service["plannedPerSecond"],
        unserved=service["unservedPerSecond"],
        attained=service["attained"],
        percentile=service["percentile"],
        slo_ms=service["sloMs"],
        tpot_ms=service["tpotMs"],
        latency_ms=service["latencyMs"],
        burn=service["burnRate"],
        instances=service["instances"],
        routed=service["routed"],
        silent=service["silentCopies"],
        price=service["pricePerHour"],
        reason=why["reason"] if why else "",
        relaxation=why["relaxation"] if why else "",
        short=short,
    )


def _state(service: OverviewServiceWire) -> tuple[str, str]:
    if service["unservedPerSecond"] > 0:
        return "unserved", "partly unserved" if service["instances"] else "unserved"
    if not service["instances"]:
        return "unserved", "not planned yet"
    if not service["routed"] and service["silentCopies"]:
        return "late", "its nodes are silent"
    if not service["routed"]:
        return ("quiet", "no copy answers yet") if service["attained"] is None else ("late", "no copy answers")
    if service["attained"] is None:
        return "quiet", "no requests"
    if is_late(service):
        return "late", "below its SLO"
    return "kept", "within its SLO"
