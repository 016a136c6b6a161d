"""Words the pages that ask before something large is done: what exactly would happen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.console.links import job_link, node_link, plan_link, service_link
from app.console.plan_page import EFFECTS, LABELS
from app.console.wording import count, money, number
from solvers.planning.plan_fields import held_gpus, spell_changes


@dataclass(frozen=True, slots=True)
class AffectedLine:
    """A service or job that would move, with the number of its instances."""

    name: str  # tenant/name
    link: str
    instances: int  # 0: a job


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A page with one button: what it does, in sentences, and where it posts to."""

    question: str
    button: str
    action: str
    back: str  # the address of the page that the visitor came from
    back_name: str
    effects: Sequence[str]
    affected: Sequence[AffectedLine] = ()
    fields: Mapping[str, str] = field(default_factory=dict)  # sent along, hidden
    message: str = ""  # the reason, if the visitor has given it


def confirm_plan(
    verb: str, head: Mapping[str, Any], difference: Mapping[str, Any] | None, in_force: int, currency: str
) -> Confirmation:
    """Returns the page before a plan is approved or rejected."""
    generation, label = head["generation"], LABELS[verb]
    changes = spell_changes(head.get("changes") or {}) or "change only the shares of requests"
    effects = [EFFECTS[verb]]
    if verb == "approve":
        effects += [f"It will {changes}.", *_costs(difference or {}, currency)]
    else:
        effects.append(f"What it would have done: {changes}.")
        effects.append(f"Plan {in_force} stays in force." if in_force else "No plan is in force.")
    return Confirmation(
        question=f"{label} plan {generation}?",
        button=f"{label} plan {generation}",
        action=f"{plan_link(generation)}/{verb}",
        back=plan_link(generation),
        back_name=f"Plan {generation}",
        effects=effects,
    )


def _costs(difference: Mapping[str, Any], currency: str) -> list[str]:
    cost = difference.get("cost") or {}
    before, after = cost.get("before") or {}, cost.get("after") or {}
    lines = []
    if after.get("resourceCost") is not None:
        was = f", now {money(before['resourceCost'])}" if before.get("resourceCost") is not None else ""
        lines.append(f"GPUs then cost {money(after['resourceCost'])} {currency} an hour{was}.".replace("  ", " "))
    services = [line["service"] for line in difference.get("services", ()) if line["service"].count("/") == 1]
    lines += [f"{count(len(services), 'service changes', 'services change')}."] if services else []
    left = sum(line["after"]["unservedPerSecond"] for line in difference.get("services", ()))
    lines += [f"Of the services that change, {number(left)} requests a second stay unserved."] if left else []
    return lines


def confirm_drain(
    node: str, gpu: int | None, hours: float | None, message: str, plan: Mapping[str, Any]
) -> Confirmation:  # fmt: skip
    """Returns the page before a node or one of its GPUs is drained; `plan` is the body of the one in force."""

    def is_there(line: Mapping[str, Any]) -> bool:
        return bool(line["node"] == node and (gpu is None or gpu in held_gpus(line)))

    services = Counter(line["service"] for line in plan.get("instances", ()) if is_there(line))
    jobs = sorted(line["job"] for line in plan.get("jobs", ()) if is_there(line))
    what = f"node {node}" if gpu is None else f"GPU {gpu} of node {node}"
    effects = [_movers(services, len(jobs)), "New copies answer on other nodes before the old ones end."]
    effects.append("What cannot leave stays, and events say why. Nothing new is placed there until it is uncordoned.")
    if hours is not None:
        effects.append(f"It should be empty within {number(hours)} {'hour' if hours == 1 else 'hours'}.")
    return Confirmation(
        question=f"Drain {what}?",
        button=f"Drain {what}",
        action=f"{node_link(node)}/drain",
        back=node_link(node),
        back_name=f"Node {node}",
        effects=effects,
        affected=[
            *(AffectedLine(name, service_link(name), found) for name, found in sorted(services.items())),
            *(AffectedLine(name, job_link(name), 0) for name in jobs),
        ],
        fields={
            name: value
            for name, value in (("gpu", "" if gpu is None else str(gpu)), ("hours", f"{hours:g}" if hours else ""))
            if value
        },
        message=message,
    )


def _movers(services: Counter[str], jobs: int) -> str:
    instances = services.total()
    parts = []
    if instances:
        parts.append(f"{count(instances, 'instance', 'instances')} of {count(len(services), 'service', 'services')}")
    if jobs:
        parts.append(count(jobs, "job", "jobs"))
    if not parts:
        return "Nothing is planned there, so nothing has to move."
    return f"{' and '.join(parts)} must move."
