"""Words the pages that ask before something large is done: what exactly would happen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.api.plans.plan_wire import PlanWire
from app.api.plans.plans import PlanDifferenceWire
from app.console.links import job_link, node_link, plan_link, service_link, what_if_link
from app.console.plan_page import EFFECTS, LABELS
from app.console.wording import count, money, number
from solvers.planning.plan_fields import held_gpus, spell_changes
from solvers.planning.wire import PlanInstanceWire, PlanJobWire, PlanLinesWire


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
    what_if: str = ""  # the address of the question what it would cost; empty where nothing is asked


def confirm_plan(
    verb: str, head: PlanWire, difference: PlanDifferenceWire | None, in_force: int, currency: str
) -> Confirmation:
    """Returns the page before a plan is approved or rejected."""
    generation, label = head["generation"], LABELS[verb]
    planned = head.get("changes")
    changes = (spell_changes(planned) if planned else "") or "change only the shares of requests"
    effects = [EFFECTS[verb]]
    if verb == "approve":
        effects += [f"It will {changes}.", *_costs(difference, currency)]
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


def _costs(difference: PlanDifferenceWire | None, currency: str) -> list[str]:
    if difference is None:
        return []
    cost, lines = difference.get("cost"), []
    if cost and (after := cost["after"]):
        was = f", now {money(cost['before']['resourceCost'])}" if cost["before"] else ""
        lines.append(f"GPUs then cost {money(after['resourceCost'])} {currency} an hour{was}.".replace("  ", " "))
    services = [line["service"] for line in difference["services"] if line["service"].count("/") == 1]
    lines += [f"{count(len(services), 'service changes', 'services change')}."] if services else []
    left = sum(line["after"]["unservedPerSecond"] for line in difference["services"])
    lines += [f"Of the services that change, {number(left)} requests a second stay unserved."] if left else []
    return lines


def confirm_drain(
    node: str, gpu: int | None, hours: float | None, message: str, plan: PlanLinesWire
) -> Confirmation:  # fmt: skip
    """Returns the page before a node or one of its GPUs is drained; `plan` is the body of the one in force."""

    def is_there(line: PlanInstanceWire | PlanJobWire) -> bool:
        return bool(line["node"] == node and (gpu is None or gpu in held_gpus(line)))

    services = Counter(line["service"] for line in plan["instances"] if is_there(line))
    jobs = sorted(line["job"] for line in plan["jobs"] if is_there(line))
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
        what_if=what_if_link(node=node) if gpu is None else "",
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
