"""One frame of `gpuwright top`: lines of text made from the answer of the server alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cli.currency import head_amounts, name_currency
from cli.output import age, name_subject, plain, shorten, spell_copies, width
from solvers.planning.plan_fields import spell_changes

Paint = Mapping[str, str]  # a name of a colour -> how it begins; empty: no colours
BAR = 20
FEW = 5  # decisions
NODES_NAMED = 4
STARTING_SECONDS = 180.0  # of the first plan
TROUBLES = 5  # events that are more than news
LEAVING = "leaving: the plan does not use it"
RESET = "\x1b[0m"


def frame(
    overview: Mapping[str, Any], lines: int | None = None, colours: Paint | None = None, currency: str = ""
) -> list[str]:
    """Returns the whole picture in at most so many lines; what does not fit is counted."""
    paint = colours or {}
    services: Sequence[Mapping[str, Any]] = overview.get("services", ())
    gpus: Sequence[Mapping[str, Any]] = overview.get("gpus", ())
    leaving: Sequence[Mapping[str, Any]] = overview.get("leaving", ())
    left_out = (plain(f"left out: {why}") for why in overview.get("leftOut", ()))
    head = [
        *(name_currency(line, currency) for line in _head(overview, services, gpus)),
        *_silent_nodes(overview),
        *left_out,
    ]
    pools = _pools(overview, currency)
    decided = [*pools, *_decisions(overview, currency), *_troubles(overview, currency)]
    room = None if lines is None else max(6, lines - len(head) - len(decided) - 4)
    most = None if room is None else max(3, min(len(services) + 1, room * 2 // 3))
    of_services = _services(services, most, paint, head_amounts("COST/H", currency))
    of_gpus = _gpus([*gpus, *leaving], None if room is None else max(3, room - len(of_services)), paint)
    found = [*head, "", *of_services]
    if of_gpus:
        found += ["", *of_gpus]
    if decided:
        found += ["", *decided]
    return found if lines is None else found[:lines]


def _head(overview: Mapping[str, Any], services: Sequence[Any], gpus: Sequence[Any]) -> list[str]:
    plan = overview.get("plan")
    leader = overview.get("leader") or {}
    last = f" ({leader['holder']} led last, epoch {leader['epoch']})" if leader else ""
    led = f"led by {leader['holder']}, epoch {leader['epoch']}" if leader.get("held") else f"no planner leads{last}"
    if "plan" not in overview:  # a tenant sees its services alone
        return [f"{len(services)} services"]
    if plan is None:
        tried = next(
            (f"; {cycle['outcome']}: {cycle['message']}" for cycle in overview.get("cycles", ()) if cycle["message"]),
            "",
        )
        return [plain(f"no plan yet; {led}{tried}")]
    reason = f"{plan['reason'].replace('_', ' ')}, " if plan.get("reason") else ""
    first = f"plan {plan['generation']} is {plan['state']} ({reason}{age(plan['at'])} ago); {led}"
    lacking = plan.get("unservedPerSecond") or 0.0
    missing = f"   unserved {_number(lacking)}/s" if lacking else ""
    held = (overview.get("money") or {}).get("heldPerHour")
    held_now = "" if held is None else f"   held {_money(held)}/h"
    cost = f"cost {_money(plan['resourceCost'])}/h{missing}{held_now}{_proof(overview, plan)}"
    attained = sum(_is_attained(service) for service in services)
    known = sum(service["attained"] is not None or _is_dead(service) for service in services)
    slos = f"{attained} of {known} within their SLO" if known else "not measured yet"
    if known and not attained and _is_new(plan):
        slos = "starting"
    leaving = len(overview.get("leaving", ()))
    in_use = f"{len(gpus)} and {leaving} leaving" if leaving else str(len(gpus))
    return [plain(first), f"{cost}   services {slos}   GPUs in use {in_use}"]


def _is_new(plan: Mapping[str, Any]) -> bool:
    """Returns whether it is the first plan, whose copies may still start: what was late before says nothing of them."""
    since = datetime.now(UTC) - datetime.fromisoformat(plan["at"])
    return plan.get("reason") == "first_plan" and since.total_seconds() < STARTING_SECONDS


def _proof(overview: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Returns the plan's bound and gap, where these are of what runs.

    With something unserved they are about cost and penalty together. A rollout that stopped ends elsewhere than its
    plan, and what silent nodes run is not known. One that has never reported runs nothing.
    """
    is_elsewhere = plan["state"] not in ("rolling", "done") or any(node["since"] for node in overview.get("silent", ()))
    if plan["bound"] is None or plan.get("unservedPerSecond") or is_elsewhere:
        return "   no bound of what runs now"
    return f"   bound {_money(plan['bound'])}/h   gap {_percent(plan['gap'])}"


def _silent_nodes(overview: Mapping[str, Any]) -> list[str]:
    """Returns a line with the silent nodes, the longest silent first, and others with those that never reported."""
    silent = overview.get("silent", ())
    known = [f"{node['node']} for {age(node['since'])}" for node in silent if node["since"]]
    starting = [node["node"] for node in silent if node.get("starting")]
    new = [node["node"] for node in silent if not node["since"] and not node.get("starting")]
    found = [f"silent: {_name_some(known)}; what they run now is not known"] if known else []
    found += [f"rented and starting: {_name_some(starting)}"] if starting else []
    found += [f"never reported: {_name_some(new)}"] if new else []
    return [plain(line) for line in found]


def _name_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    return f"{', '.join(names[:NODES_NAMED])}{more}"


def _services(services: Sequence[Mapping[str, Any]], most: int | None, paint: Paint, cost: str) -> list[str]:
    rows = [
        [
            service["service"],
            _number(service["ratePerSecond"]),
            _planned(service),
            _number(service["unservedPerSecond"]) if service["unservedPerSecond"] else "",
            _percent(service["attained"], 2),
            _promise(service),
            f"{_number(service['latencyMs'])} ms" if service["latencyMs"] else "",
            _answering(service),
            _money(service["pricePerHour"]),
        ]
        for service in services
    ]
    heading = ["SERVICE", "RATE/S", "PLANNED", "UNSERVED", "ATTAINED", "SLO", "PREDICTED", "INSTANCES", cost]
    marks = ["" if service["attained"] is None or _is_attained(service) else "red" for service in services]
    marks = [
        "red" if service["unservedPerSecond"] > 0 or _is_dead(service) else mark
        for service, mark in zip(services, marks, strict=True)
    ]
    return _table(heading, rows, marks, most, paint, "services")


def _promise(service: Mapping[str, Any]) -> str:
    """Words the SLO; of a language model the time to the first token, and of each one after it."""
    pace = f", {service['tpotMs']:g} ms a token" if service.get("tpotMs") else ""
    return f"{service['percentile']:g} % in {service['sloMs']:g} ms{pace}"


def _gpus(gpus: Sequence[Mapping[str, Any]], most: int | None, paint: Paint) -> list[str]:
    rows = [
        [
            f"{gpu['node']}/{gpu['gpu']}",
            f"{'█' * round(min(100, gpu['smPercent']) / 100 * BAR):░<{BAR}} {gpu['smPercent']:g} %",
            f"{gpu['memoryGib']:.1f} GiB",
            f"{gpu['utilizationPercent']:.0f} %" if gpu.get("utilizationPercent") is not None else "",
            f"{gpu['powerW']:.0f} W" if gpu.get("powerW") is not None else "",
            ", ".join((*gpu["services"], *gpu["jobs"])) if "services" in gpu else LEAVING,
        ]
        for gpu in gpus
    ]
    return _table(["GPU", "SM%", "MEMORY", "BUSY", "POWER", "RUNS"], rows, [""] * len(rows), most, paint, "GPUs")


def _pools(overview: Mapping[str, Any], currency: str) -> list[str]:
    """Returns a table of the pools: what their nodes cost now, and this month, and for how long these did nothing."""
    rows = [
        [
            pool["pool"], pool["nodes"], pool["starting"], _money(pool["costPerHour"]) or "deleted",
            _money(pool["costThisMonth"]), f"{pool['wastedMinutes']:.0f}",
        ]
        for pool in overview.get("pools", ())
    ]  # fmt: skip
    month = head_amounts("THIS MONTH", currency)
    heading = ["POOL", "NODES", "STARTING", head_amounts("COST/H", currency), month, "WASTED MIN"]
    table = _table(heading, rows, [""] * len(rows), FEW + 1, {}, "pools")
    return [*table, ""] if table else []


def _decisions(overview: Mapping[str, Any], currency: str) -> list[str]:
    rows = []
    for decision in overview.get("decisions", ())[:FEW]:
        why = decision.get("message") or decision["why"]
        rows.append(
            [
                decision["generation"],
                age(decision["at"]),
                decision["lane"],
                decision["state"],
                spell_changes(decision["changes"]) or "nothing",
                shorten(name_currency(why, currency), 80),
            ]
        )
    return _table(["DECISION", "AGE", "LANE", "STATE", "CHANGES", "WHY"], rows, [""] * len(rows), None, {}, "")


def _troubles(overview: Mapping[str, Any], currency: str) -> list[str]:
    """Returns the latest alarms and warnings as a table."""
    alarms = [event for event in overview.get("events", ()) if event["severity"] != "info"][:TROUBLES]
    rows = [
        [
            event["reason"],
            age(event["at"]),
            name_subject(event),
            shorten(name_currency(event["message"], currency), 100),
        ]
        for event in alarms
    ]
    return ["", *_table(["EVENT", "AGE", "ABOUT", "MESSAGE"], rows, [""] * len(rows), None, {}, "")] if rows else []


def _table(
    heading: Sequence[str], rows: Sequence[Sequence[object]], marks: Sequence[str], most: int | None, paint: Paint,
    noun: str,
) -> list[str]:  # fmt: skip
    if not rows:
        return []
    shown = rows if most is None or len(rows) + 1 <= most else rows[: most - 2]
    texts = [[plain(cell) if cell not in ("", None) else "-" for cell in row] for row in shown]
    widths = [max(width(row[at]) for row in [heading, *texts]) for at in range(len(heading))]
    lines = [_line(heading, widths)]
    for text, mark in zip(texts, marks, strict=False):
        line = _line(text, widths)
        lines.append(f"{paint[mark]}{line}{RESET}" if mark in paint else line)
    if len(shown) < len(rows):
        lines.append(f"and {len(rows) - len(shown)} more {noun}")
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (wide - width(cell)) for cell, wide in zip(cells, widths, strict=True))
    return "   ".join(padded).rstrip()


def _is_attained(service: Mapping[str, Any]) -> bool:
    is_known = service["attained"] is not None and not _is_dead(service)
    return is_known and service["attained"] * 100 >= service["percentile"]


def _is_dead(service: Mapping[str, Any]) -> bool:
    """Returns whether copies are planned and none of them gets requests: what was measured before says nothing.

    Copies of silent nodes do, where answers were counted in the last minute.
    """
    answers = service["routed"] or (service.get("silentCopies") and service["ratePerSecond"])
    return service["instances"] > 0 and not answers


def _planned(service: Mapping[str, Any]) -> str:
    """Returns the planned rate, and of how much where a part of it is unserved."""
    planned, unserved = service["plannedPerSecond"], service["unservedPerSecond"]
    return f"{_number(planned)} of {_number(planned + unserved)}" if unserved else _number(planned)


def _answering(service: Mapping[str, Any]) -> str:
    """Returns the planned instances, and how many copies answer where those are not as many."""
    planned, routed, silent = service["instances"], service["routed"], service.get("silentCopies", 0)
    return str(planned) if routed == planned and not silent else spell_copies(planned, routed, silent)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value * 100:.{digits}f} %"
