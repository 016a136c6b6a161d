"""Explains a plan and why nothing changed: outcomes of cycles, changes held back, and the proof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NotRequired, TypedDict

from app.control.answer.explain.wording import clock, count, money, rate
from app.control.domain.decision import PlanState
from app.control.domain.events import spell_why
from app.manifests.model import Fields, Free
from app.store.plans.plan_reads import CycleWire
from solvers.planning.certificate_wire import PlanCertificateWire
from solvers.planning.plan_fields import (
    OTHER_PLANNERS,
    gpu_bound,
    spell_changes,
    spell_gap_of_gpus,
    spell_other,
    spell_shortfall,
)
from solvers.planning.wire import PlanUnservedWire

NAMED_LINES = 5  # of each list
UNEXPLAINED = "its reason is not known here; gpuwright explain service looks for it"


class HeldBackChangeWire(TypedDict):
    """A change that is not made, and why."""

    service: str
    reason: str
    message: str
    needsSmPercent: NotRequired[float]
    needsMemoryGib: NotRequired[float]


def describe_plan(row: Fields, plan: Fields, held_back: Sequence[HeldBackChangeWire]) -> list[str]:
    """Describes a recorded plan; `row` is what the store keeps besides its body."""
    changes = plan.get("changes") or {}
    moved = spell_changes(changes)
    sentences = [
        f"plan {row['generation']} ({row['lane']}) is {row['state']}: "
        + (f"{moved}; keep {changes.get('keep', 0)}" if moved else "it changes no instance")
    ]
    message = str(row.get("message") or "")
    why = spell_why(row.get("reason") or "", message)
    sentences += [f"why it was made: {why}"] if why else []
    sentences += [message] if message and message != why else []
    certificate = plan.get("certificate")
    sentences += [_cost(certificate)] if certificate else []
    others = certificate.get("otherPlanners") if certificate else None
    sentences += [f"{OTHER_PLANNERS}: {'; '.join(spell_other(other) for other in others)}"] if others else []
    sentences += [spell_shortfall(shortfall) for shortfall in (certificate or {}).get("shortfalls") or ()]
    sentences += _write_unserved(plan.get("unserved") or ())
    sentences += explain_held_back(held_back)
    return sentences


def _cost(certificate: PlanCertificateWire) -> str:
    text = f"its GPUs cost {money(certificate['resourceCost'])} an hour"
    penalty = certificate.get("unservedCost") or 0.0
    least = gpu_bound(certificate)
    lacking = f"; the penalty for what is unserved is {money(penalty)}" if penalty else ""
    if least is None:
        text += lacking
    if (bound := certificate["bound"]) is None:
        reason = certificate.get("noBoundReason")
        return f"{text}; no bound{f': {reason}' if reason else ''} ({certificate.get('method', '')})"
    gap = certificate.get("gap")
    away = f", {100 * gap:.1f} % away" if gap is not None else ""
    age = certificate.get("boundAgeSeconds")
    method = f"{certificate.get('method', '')}{f'; by the prices of a search {age:.0f} s before' if age else ''}"
    if least is None:
        return f"{text}; no plan can cost less with its penalty than {money(bound)} ({method})"
    parts = spell_gap_of_gpus(certificate)
    other = "plan that leaves no more unserved" if penalty else "plan"
    return f"{text}; no {other} can cost less than {money(least)}{away}{parts}{lacking} ({method})"


def _write_unserved(unserved: Iterable[PlanUnservedWire]) -> list[str]:
    ranked = sorted(unserved, key=lambda line: -line["ratePerSecond"])
    sentences = [
        f"unserved: {line['service']}, {rate(line['ratePerSecond'])} a second: {line.get('reason') or UNEXPLAINED}"
        + (f"; least change that helps: {line['relaxation']}" if line.get("relaxation") else "")
        for line in ranked[:NAMED_LINES]
    ]
    return sentences + (
        [f"and {count(len(ranked) - NAMED_LINES, 'more service')} unserved"] if len(ranked) > NAMED_LINES else []
    )


def explain_held_back(held_back: Sequence[HeldBackChangeWire]) -> list[str]:
    """Lists the changes that the plan holds back."""
    sentences = [
        f"held back: {change['service'] or 'the plan'} ({change['reason']}): {change['message']}"
        for change in held_back[:NAMED_LINES]
    ]
    return sentences + (
        [f"and {count(len(held_back) - NAMED_LINES, 'more change')} held back"] if len(held_back) > NAMED_LINES else []
    )


def explain_gateway_waits(row: Fields, plan: Fields, service: str = "") -> list[str]:
    """Names each gateway that keeps copies serving that are to leave, and these copies: of one service or of all."""
    rollout = row["rollout"] if row["state"] != PlanState.SUPERSEDED else {}  # that of the plan after it counts
    placed = {line["id"]: (line["service"], line["node"]) for line in plan["instances"]}
    waits = [(id_, step["waits_for"], *placed.get(id_, ("", ""))) for id_, step in _list_waits(rollout, "pending")]
    waits += [
        (id_, gone["waits_for"], f"{gone['instance'].get('tenant')}/{gone['instance'].get('service')}", gone["node"])
        for id_, gone in _list_waits(rollout, "leaving")
    ]
    copies: dict[str, list[str]] = defaultdict(list)
    for id_, wait, owner, node in waits:
        if service in ("", owner):
            copies[wait].append(f"{id_} of {owner} on {node}" if owner else id_)
    return [
        f"{wait}: {', '.join(named[:NAMED_LINES])}"
        + (f" and {len(named) - NAMED_LINES} more" if len(named) > NAMED_LINES else "")
        for wait, named in sorted(copies.items())
    ]


def _list_waits(rollout: Free, part: str) -> list[tuple[str, Free]]:
    return [(id_, step) for id_, step in sorted((rollout.get(part) or {}).items()) if step.get("waits_for")]


def explain_cycles(cycles: Sequence[CycleWire]) -> list[str]:
    """Describes the newest cycles, the newest first."""
    sentences: list[str] = []
    for same in _runs(cycles):
        first = same[0]
        what = OUTCOMES.get(first["outcome"], first["outcome"])
        many = f", {len(same)} times in a row" if len(same) > 1 else ""
        text = f": {first['message']}" if first.get("message") else ""
        sentences.append(f"{clock(first['at'])}: {what}{many}{text}")
        if len(sentences) == NAMED_LINES:
            break
    return sentences or ["no cycle has been recorded yet: is a planner running?"]


OUTCOMES = {
    "solved": "a plan was made",
    "unchanged": "no other plan was made",
    "out_of_time": "the solver had no plan by its deadline, so the last plan stays in force",
    "crashed": "the solver's process died, so the last plan stays in force",
    "wrong": "the judge rejected the solver's plan, so the last plan stays in force",
    "compiling": "the joint solver still compiled its loops, once on this machine",
}


def _runs(cycles: Sequence[CycleWire]) -> Iterable[list[CycleWire]]:
    """Groups consecutive cycles with the same outcome and message."""
    same: list[CycleWire] = []
    for cycle in cycles:
        if same and (cycle["outcome"], cycle.get("message")) != (same[0]["outcome"], same[0].get("message")):
            yield same
            same = []
        same.append(cycle)
    if same:
        yield same
