"""One frame of `gpuwright top`: lines of text made from the answer of the server alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cli.output import age, name_subject, plain, shorten, width
from solvers.planning.plan_fields import spell_changes

Paint = Mapping[str, str]  # a name of a colour -> how it begins; empty: no colours
BAR = 20
FEW = 5  # decisions
TROUBLES = 5  # events that are more than news
LEAVING = "leaving: the plan does not use it"
RESET = "\x1b[0m"


def frame(overview: Mapping[str, Any], lines: int | None = None, colours: Paint | None = None) -> list[str]:
    """Returns the whole picture in at most so many lines; what does not fit is counted."""
    paint = colours or {}
    services: Sequence[Mapping[str, Any]] = overview.get("services", ())
    gpus: Sequence[Mapping[str, Any]] = overview.get("gpus", ())
    leaving: Sequence[Mapping[str, Any]] = overview.get("leaving", ())
    head = [*_head(overview, services, gpus), *(plain(f"left out: {why}") for why in overview.get("leftOut", ()))]
    decided = [*_decisions(overview), *_troubles(overview)]
    room = None if lines is None else max(6, lines - len(head) - len(decided) - 4)
    of_services = _services(services, None if room is None else max(3, min(len(services) + 1, room * 2 // 3)), paint)
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
    # With something unserved, bound and gap are about cost and penalty together, and the bound is no price of GPUs.
    is_price = plan["bound"] is not None and not plan.get("unservedPerSecond")
    bound = f"{_money(plan['bound'])}/h" if is_price else "-"
    lacking = plan.get("unservedPerSecond") or 0.0
    missing = f"   unserved {_number(lacking)}/s" if lacking else ""
    held = (overview.get("money") or {}).get("heldPerHour")
    held_now = "" if held is None else f"   held {_money(held)}/h"
    cost = f"cost {_money(plan['resourceCost'])}/h{missing}{held_now}   bound {bound}   gap {_percent(plan['gap'])}"
    attained = sum(_is_attained(service) for service in services)
    known = sum(service["attained"] is not None or _is_dead(service) for service in services)
    slos = f"{attained} of {known} within their SLO" if known else "not measured yet"
    leaving = len(overview.get("leaving", ()))
    in_use = f"{len(gpus)} and {leaving} leaving" if leaving else str(len(gpus))
    return [plain(first), f"{cost}   services {slos}   GPUs in use {in_use}"]


def _services(services: Sequence[Mapping[str, Any]], most: int | None, paint: Paint) -> list[str]:
    rows = [
        [
            service["service"],
            _number(service["ratePerSecond"]),
            _number(service["plannedPerSecond"]),
            _number(service["unservedPerSecond"]) if service["unservedPerSecond"] else "",
            _percent(service["attained"], 2),
            _promise(service),
            f"{_number(service['latencyMs'])} ms" if service["latencyMs"] else "",
            _answering(service),
            _money(service["pricePerHour"]),
        ]
        for service in services
    ]
    heading = ["SERVICE", "RATE/S", "PLANNED", "UNSERVED", "ATTAINED", "SLO", "PREDICTED", "INSTANCES", "COST/H"]
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


def _decisions(overview: Mapping[str, Any]) -> list[str]:
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
                shorten(why, 80),
            ]
        )
    return _table(["DECISION", "AGE", "LANE", "STATE", "CHANGES", "WHY"], rows, [""] * len(rows), None, {}, "")


def _troubles(overview: Mapping[str, Any]) -> list[str]:
    """Returns the latest alarms and warnings as a table."""
    alarms = [event for event in overview.get("events", ()) if event["severity"] != "info"][:TROUBLES]
    rows = [
        [event["reason"], age(event["at"]), name_subject(event), shorten(event["message"], 100)] for event in alarms
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
    """Returns whether copies are planned and none of them gets requests: what was measured before says nothing."""
    return service["instances"] > 0 and not service["routed"]


def _answering(service: Mapping[str, Any]) -> str:
    """Returns the planned instances, and how many copies answer while those are fewer."""
    planned, routed = service["instances"], service["routed"]
    return str(planned) if routed >= planned else f"{routed} of {planned}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value * 100:.{digits}f} %"
