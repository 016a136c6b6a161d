"""Compares two plans service by service: instances, shapes and rates before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from app.control.answer.explain.difference_wire import MovesWire, ServiceDifferenceWire, ServiceShapesWire
from app.control.answer.explain.plan import HeldBackChangeWire
from app.control.answer.explain.why_changed import ChangeFacts, explain_changes
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import PlanInstanceWire, PlanLinesWire, PlanUnservedWire

NO_FACTS = ChangeFacts()


def is_changed(difference: ServiceDifferenceWire) -> bool:
    """Returns whether a plan changes instances of the service, or what it leaves unserved."""
    missed = difference["after"]["unservedPerSecond"] - difference["before"]["unservedPerSecond"]
    moved = any(difference[name] for name in ("started", "stopped", "moved", "resized", "retuned"))
    return moved or abs(missed) > 1e-9


def find_differences(
    before: PlanLinesWire | None, after: PlanLinesWire, held_back: Iterable[HeldBackChangeWire] = (),
    facts: ChangeFacts = NO_FACTS,
) -> list[ServiceDifferenceWire]:  # fmt: skip
    """Returns the differences of every service in either plan, changed services first, each with the reason."""
    old, new = _group_by_service(before), _group_by_service(after)
    missed_before, missed_after = _read_unserved(before), _read_unserved(after)
    held: dict[str, list[str]] = {}
    for change in held_back:
        held.setdefault(change["service"], []).append(f"held back ({change['reason']}): {change['message']}")
    found: list[ServiceDifferenceWire] = []
    for name in sorted(old.keys() | new.keys() | missed_before.keys() | missed_after.keys() | held.keys()):
        missed = missed_after.get(name)
        reasons = [f"unserved: {missed['reason']}"] if missed and missed.get("reason") else []
        before_it = _shapes(old.get(name, []), missed_before.get(name))
        after_it = _shapes(new.get(name, []), missed)
        moves = _moves(old.get(name, []), new.get(name, []))
        words = _spell(before_it["instances"], after_it["instances"], moves)
        reasons += held.get(name, ())
        found.append(
            {"service": name, "words": words, "before": before_it, "after": after_it, **moves, "reasons": reasons}
        )
    whys = explain_changes(before, after, [line["service"] for line in found if is_changed(line)], facts)
    for line in found:
        if line["service"] in whys:
            line["reasons"].insert(0, whys[line["service"]])
    return sorted(found, key=lambda line: (not is_changed(line), line["service"]))


def _group_by_service(plan: PlanLinesWire | None) -> dict[str, list[PlanInstanceWire]]:
    found: dict[str, list[PlanInstanceWire]] = {}
    for instance in plan["instances"] if plan else ():
        found.setdefault(instance["service"], []).append(instance)
    return found


def _read_unserved(plan: PlanLinesWire | None) -> dict[str, PlanUnservedWire]:
    return {line["service"]: line for line in plan["unserved"]} if plan else {}


def _shapes(mine: Sequence[PlanInstanceWire], missed: PlanUnservedWire | None) -> ServiceShapesWire:
    shapes = Counter((instance["variant"], instance["batch"], instance["smPercent"]) for instance in mine)
    return {
        "instances": len(mine),
        "ratePerSecond": sum(instance["ratePerSecond"] for instance in mine),
        "unservedPerSecond": missed["ratePerSecond"] if missed else 0.0,
        "shapes": [
            f"{number} x {variant}, batch {batch}, {sm} %" for (variant, batch, sm), number in sorted(shapes.items())
        ],
    }


def _moves(old: Sequence[PlanInstanceWire], new: Sequence[PlanInstanceWire]) -> MovesWire:
    """Counts changes as the contract does: keep, retune or resize on the same GPU; starts and stops pair into moves."""
    counts: MovesWire = {"started": 0, "stopped": 0, "moved": 0, "resized": 0, "retuned": 0, "kept": 0}
    unmatched = list(old)
    starts = 0
    for instance in new:
        there = [other for other in unmatched if _place(other) == _place(instance)]
        same = next((other for other in there if _shape(other) == _shape(instance)), None) or next(iter(there), None)
        if same is None:
            starts += 1
            continue
        unmatched.remove(same)
        if _shape(same) != _shape(instance):
            counts["resized"] += 1
        else:
            counts["kept" if _tuning(same, instance) else "retuned"] += 1
    counts["moved"] = min(starts, len(unmatched))
    counts["started"], counts["stopped"] = starts - counts["moved"], len(unmatched) - counts["moved"]
    return counts


def _place(instance: PlanInstanceWire) -> tuple[str, int]:
    """Returns the node and the first GPU of an instance, as changes count it."""
    return instance["node"], held_gpus(instance)[0]


def _shape(instance: PlanInstanceWire) -> tuple[object, ...]:
    return (instance["variant"], instance["smPercent"], instance["memoryGib"], held_gpus(instance))


def _tuning(instance: PlanInstanceWire, other: PlanInstanceWire) -> bool:
    """Returns whether batch, timeout, clock and rate are the same."""
    return all(
        abs(instance[name] - other[name]) <= 1e-9 * max(1.0, abs(other[name]))
        for name in ("batch", "batchTimeoutMs", "clockMhz", "ratePerSecond")
    )


def _spell(before: int, after: int, moves: MovesWire) -> str:
    """Returns `2 -> 3 instances: 1 started, 1 resized`."""
    words = [f"{moves[name]} {name}" for name in ("started", "stopped", "moved", "resized", "retuned") if moves[name]]
    text = f"{before} -> {after} instances"
    return f"{text}: {', '.join(words)}" if words else text
