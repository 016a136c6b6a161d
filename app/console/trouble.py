"""Finds what is wrong right now, the worst first: the first thing that an operator on call sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.console.data import ConsoleData
from app.console.fleet import FleetPicture
from app.console.links import node_link, plan_link
from app.console.page_request import ServicesQuery
from app.console.services import ServiceRow
from app.console.wording import age, number
from app.control.domain.events import Reason, reason_of

PLANS = "/plans"
NAMED_OBJECTS = 3
ALARM_BURN_RATE = 6.0  # times as fast as the allowance of a month lasts
CYCLE_LATE = timedelta(minutes=15)
FAILED = (Reason.SOLVER_OUT_OF_TIME, Reason.SOLVER_CRASHED, Reason.SOLVER_WRONG)


@dataclass(frozen=True, slots=True)
class TroubleLine:
    """A line and its link; its severity is `alarm` or `warning`."""

    severity: str
    text: str
    names: str
    link: str


def find_troubles(data: ConsoleData, rows: Sequence[ServiceRow], fleet: FleetPicture) -> list[TroubleLine]:
    """Returns alarms before warnings."""
    found = [*_unserved(rows), *_fleet(fleet), *_planner(data), *_late(rows)]
    return sorted(found, key=lambda line: line.severity != "alarm")


def _unserved(rows: Sequence[ServiceRow]) -> Iterator[TroubleLine]:
    short = [row for row in rows if row.state == "unserved"]
    if short:
        short.sort(key=lambda row: (-row.unserved, row.name))
        lost = sum(row.unserved for row in short)
        text = f"{_count(len(short), 'service is', 'services are')} not fully served"
        text += f", {number(lost)} requests a second short" if lost else ""
        yield TroubleLine("alarm", text, _listed([row.name for row in short]), ServicesQuery(state="unserved").url())


def _late(rows: Sequence[ServiceRow]) -> Iterator[TroubleLine]:
    late = [row for row in rows if row.state == "late"]
    if late:
        late.sort(key=lambda row: -(row.burn or 0.0))
        burning = [row for row in late if (row.burn or 0.0) >= ALARM_BURN_RATE]
        text = f"{_count(len(late), 'service is', 'services are')} below the SLO in the last 30 minutes"
        link = ServicesQuery(state="late").url()
        yield TroubleLine("alarm" if burning else "warning", text, _listed([row.name for row in late]), link)


def _fleet(fleet: FleetPicture) -> Iterator[TroubleLine]:
    if fleet.unheard:
        text = f"no node reports: all {fleet.nodes} are silent; the fault may be this server's"
        yield TroubleLine("alarm", text, _listed([name for name, _ in fleet.silent]), "#fleet")
    elif fleet.silent:
        never = sum(duration == "never reported" for _, duration in fleet.silent)
        severity = "warning" if never == len(fleet.silent) else "alarm"
        text = f"{_count(len(fleet.silent), 'node is', 'nodes are')} silent"
        named = [f"{name} ({duration})" for name, duration in fleet.silent]
        yield TroubleLine(severity, text, _listed(named), node_link(fleet.silent[0][0]))
    if fleet.reclaimed:
        named = [f"{name} ({when})" for name, when in fleet.reclaimed]
        text = f"{_count(len(fleet.reclaimed), 'node is', 'nodes are')} to be reclaimed"
        yield TroubleLine("warning", text, _listed(named), node_link(fleet.reclaimed[0][0]))
    if fleet.ailing:
        named = [f"{node}/{index} ({why.replace('_', ' ')})" for node, index, why in fleet.ailing]
        text = f"{_count(len(fleet.ailing), 'GPU is', 'GPUs are')} unhealthy"
        yield TroubleLine("alarm", text, _listed(named), node_link(fleet.ailing[0][0]))


def _planner(data: ConsoleData) -> Iterator[TroubleLine]:
    if data.tenant:
        return
    if data.leader is None:
        yield TroubleLine("alarm", "no planner has ever led", "gpuwright planner starts one", PLANS)
    elif not data.leader.held:
        silent = age((data.at - data.leader.renewed_at).total_seconds())
        yield TroubleLine("alarm", f"no planner has led for {silent}", f"the last was {data.leader.holder}", PLANS)
    reason = reason_of(data.cycle["reason"]) if data.cycle else None
    if reason in FAILED and reason is not None:
        yield TroubleLine(reason.severity, "the last cycle made no plan", reason.sentence, PLANS)
    elif data.cycle and data.at - data.cycle["at"] > CYCLE_LATE:
        late = age((data.at - data.cycle["at"]).total_seconds())
        yield TroubleLine("warning", f"the last cycle was {late} ago", "", PLANS)
    state = data.plan["state"] if data.plan else ""
    if data.plan and state in ("stopped", "paused"):
        text = f"the rollout of plan {data.plan['generation']} is {state}"
        message = str(data.plan.get("message") or "")
        yield TroubleLine("warning", text, message, plan_link(data.plan["generation"]))
    if data.hold:
        text = f"since the rollback by plan {data.hold.generation} every plan waits for approval"
        yield TroubleLine("warning", text, "resume the fleet on the page of plans", PLANS)
    if data.waiting:
        text = f"plan {data.waiting} waits for approval"
        yield TroubleLine("warning", text, f"gpuwright plan approve {data.waiting}", plan_link(data.waiting))
    lost = len(data.body.get("unplaced", ()))
    if lost:
        names = _listed([line["job"] for line in data.body["unplaced"]])
        yield TroubleLine("warning", f"{_count(lost, 'job has', 'jobs have')} no place", names, "/jobs")


def _count(count: int, singular: str, many: str) -> str:
    return f"{number(count)} {singular if count == 1 else many}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_OBJECTS
    return ", ".join(names[:NAMED_OBJECTS]) + (f" and {number(more)} more" if more > 0 else "")
