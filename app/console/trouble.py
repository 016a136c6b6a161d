"""Finds what is wrong right now, the worst first: the first thing that an operator on call sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.console.data import ConsoleData
from app.console.fleet import NEVER_REPORTED, FleetPicture
from app.console.late_runs import LateRun
from app.console.links import job_link, node_link, plan_link, service_link
from app.console.page_request import ServicesQuery
from app.console.services import ServiceRow
from app.console.wording import age, count, number
from app.control.domain.events import Reason, reason_of

PLANS = "/plans"
MAP = "#fleet"  # nodes with trouble come first there
NAMED_OBJECTS = 3
ALARM_BURN_RATE = 6.0  # times as fast as the allowance of a month lasts
CYCLE_LATE = timedelta(minutes=15)
FAILED = (Reason.SOLVER_OUT_OF_TIME, Reason.SOLVER_CRASHED, Reason.SOLVER_WRONG)


@dataclass(frozen=True, slots=True)
class TroubleSubject:
    """A service, node or job in trouble, with a few words about it."""

    name: str
    link: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class TroubleLine:
    """A line and its link; its severity is `alarm` or `warning`. The first subjects are named, `more` are not."""

    severity: str
    text: str
    link: str
    note: str = ""
    subjects: tuple[TroubleSubject, ...] = ()
    more: int = 0


def find_troubles(data: ConsoleData, rows: Sequence[ServiceRow], fleet: FleetPicture) -> list[TroubleLine]:
    """Returns alarms before warnings."""
    found = [
        *_list_unserved(data, rows),
        *_fleet(fleet),
        *_planner(data),
        *_late(data, rows),
        *_list_unplaced(data),
        *_list_without_saves(data),
    ]
    return sorted(found, key=lambda line: line.severity != "alarm")


def _list_unserved(data: ConsoleData, rows: Sequence[ServiceRow]) -> Iterator[TroubleLine]:
    short = [row for row in rows if row.state == "unserved"]
    if short:
        short.sort(key=lambda row: (-row.unserved, row.name))
        lost = sum(row.unserved for row in short)
        text = f"{count(len(short), 'service is', 'services are')} not fully served"
        text += f", {number(lost)} requests a second short" if lost else ""
        yield _write_line("alarm", text, ServicesQuery(state="unserved").url(), _services(data, short))


def _late(data: ConsoleData, rows: Sequence[ServiceRow]) -> Iterator[TroubleLine]:
    late = [row for row in rows if row.state == "late"]
    if late:
        late.sort(key=lambda row: -(row.burn or 0.0))
        burning = [row for row in late if (row.burn or 0.0) >= ALARM_BURN_RATE]
        text = f"{count(len(late), 'service is', 'services are')} below the SLO in the last 30 minutes"
        link = ServicesQuery(state="late").url()
        yield _write_line("alarm" if burning else "warning", text, link, _services(data, late))


def _fleet(fleet: FleetPicture) -> Iterator[TroubleLine]:
    silent = [TroubleSubject(name, node_link(name), duration) for name, duration in fleet.silent]
    if fleet.unheard:
        text = f"no node reports: all {fleet.nodes} are silent; the fault may be this server's"
        yield _write_line("alarm", text, MAP, silent)
    elif silent:
        never = sum(subject.words == NEVER_REPORTED for subject in silent)
        severity = "warning" if never == len(silent) else "alarm"
        yield _write_line(severity, f"{count(len(silent), 'node is', 'nodes are')} silent", MAP, silent)
    if fleet.reclaimed:
        leaving = [TroubleSubject(name, node_link(name), when) for name, when in fleet.reclaimed]
        yield _write_line("warning", f"{count(len(leaving), 'node is', 'nodes are')} to be reclaimed", MAP, leaving)
    if fleet.closed:
        closed = [TroubleSubject(name, node_link(name), how) for name, how in fleet.closed]
        text = f"{count(len(closed), 'node is', 'nodes are')} closed: plans put nothing new there"
        yield _write_line("warning", text, MAP, closed)
    if fleet.ailing:
        ailing = [
            TroubleSubject(f"{node}/{index}", node_link(node), why.replace("_", " "))
            for node, index, why in fleet.ailing
        ]
        yield _write_line("alarm", f"{count(len(ailing), 'GPU is', 'GPUs are')} unhealthy", MAP, ailing)


def _planner(data: ConsoleData) -> Iterator[TroubleLine]:
    if data.tenant:
        return
    if data.leader is None:
        yield TroubleLine("alarm", "no planner has ever led", PLANS, "gpuwright planner starts one")
    elif not data.leader.held:
        silent = age((data.at - data.leader.renewed_at).total_seconds())
        yield TroubleLine("alarm", f"no planner has led for {silent}", PLANS, f"the last was {data.leader.holder}")
    reason = reason_of(data.cycle["reason"] or "") if data.cycle else None
    if reason in FAILED and reason is not None:
        yield TroubleLine(reason.severity, "the last cycle made no plan", PLANS, reason.sentence)
    elif data.cycle and (late := data.at - datetime.fromisoformat(data.cycle["at"])) > CYCLE_LATE:
        yield TroubleLine("warning", f"the last cycle was {age(late.total_seconds())} ago", PLANS)
    state = data.plan["state"] if data.plan else ""
    if data.plan and state in ("stopped", "paused"):
        text = f"the rollout of plan {data.plan['generation']} is {state}"
        message = str(data.plan.get("message") or "")
        yield TroubleLine("warning", text, plan_link(data.plan["generation"]), message)
    if data.hold:
        text = f"since the rollback by plan {data.hold.generation} every plan waits for approval"
        yield TroubleLine("warning", text, PLANS, "resume the fleet on the page of plans")
    if data.waiting:
        text = f"plan {data.waiting} waits for approval"
        yield TroubleLine("warning", text, plan_link(data.waiting), f"gpuwright plan approve {data.waiting}")


def _list_without_saves(data: ConsoleData) -> Iterator[TroubleLine]:
    """Yields the jobs that lately did work once more because their saves were on another node."""
    found = {
        f"{event.tenant}/{event.name}": event.message
        for event in data.events
        if event.reason == Reason.JOB_SAVES_MISSING.value
    }
    if found:
        text = f"{count(len(found), 'job was', 'jobs were')} placed where earlier saves are not"
        yield _write_line("warning", text, "/jobs", [TroubleSubject(job, job_link(job), found[job]) for job in found])


def _list_unplaced(data: ConsoleData) -> Iterator[TroubleLine]:
    waiting = [TroubleSubject(line["job"], job_link(line["job"])) for line in data.body["unplaced"]]
    if waiting:
        yield _write_line("warning", f"{count(len(waiting), 'job has', 'jobs have')} no place", "/jobs", waiting)


def _services(data: ConsoleData, rows: Sequence[ServiceRow]) -> list[TroubleSubject]:
    """Returns the services, each with how long it has been below its SLO."""
    since = {name: _spell_run(run, data.at) for name, run in data.late.items()}
    return [TroubleSubject(row.name, service_link(row.name), since.get(row.name, "")) for row in rows]


def _spell_run(run: LateRun, now: datetime) -> str:
    if run.is_over:
        return f"late until {age((now - run.ends).total_seconds())} ago"
    return f"late for {age((now - run.begins).total_seconds())}"


def _write_line(severity: str, text: str, link: str, subjects: Sequence[TroubleSubject]) -> TroubleLine:
    """Returns a line that names the first subjects; the line itself leads to the only one there is."""
    link = subjects[0].link if len(subjects) == 1 else link
    more = max(0, len(subjects) - NAMED_OBJECTS)
    return TroubleLine(severity, text, link, subjects=tuple(subjects[:NAMED_OBJECTS]), more=more)
