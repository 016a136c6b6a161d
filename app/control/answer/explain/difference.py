"""Compares two plans service by service: instances, shapes and rates before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.control.answer.explain.plan import HeldBackChangeWire
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import PlanInstanceWire, PlanLinesWire, PlanUnservedWire


@dataclass(frozen=True, slots=True)
class ServiceShapes:
    """The instances of a service by shape: variant, batch, SM%."""

    instances: int
    rate_per_second: float
    unserved_per_second: float
    on: tuple[str, ...]  # `3 x fp16, batch 8, 25 %`


@dataclass(frozen=True, slots=True)
class ServiceDifference:
    """One service in two plans."""

    service: str
    before: ServiceShapes
    after: ServiceShapes
    started: int
    stopped: int
    moved: int
    resized: int
    retuned: int
    kept: int
    reasons: tuple[str, ...]  # why it is unserved or held back

    @property
    def is_changed(self) -> bool:
        return bool(self.started or self.stopped or self.moved or self.resized or self.retuned) or (
            abs(self.before.unserved_per_second - self.after.unserved_per_second) > 1e-9
        )


def find_differences(
    before: PlanLinesWire | None, after: PlanLinesWire, held_back: Iterable[HeldBackChangeWire] = ()
) -> list[ServiceDifference]:
    """Returns the differences of every service in either plan, changed services first."""
    old, new = _by_service(before), _by_service(after)
    missed_before, missed_after = _unserved(before), _unserved(after)
    held: dict[str, list[str]] = {}
    for change in held_back:
        held.setdefault(change["service"], []).append(f"held back ({change['reason']}): {change['message']}")
    found = []
    for name in sorted(old.keys() | new.keys() | missed_before.keys() | missed_after.keys() | held.keys()):
        missed = missed_after.get(name)
        reasons = [f"unserved: {missed['reason']}"] if missed and missed.get("reason") else []
        found.append(
            ServiceDifference(
                name,
                _shapes(old.get(name, []), missed_before.get(name)),
                _shapes(new.get(name, []), missed),
                **_moves(old.get(name, []), new.get(name, [])),
                reasons=(*reasons, *held.get(name, ())),
            )
        )
    return sorted(found, key=lambda line: (not line.is_changed, line.service))


def _by_service(plan: PlanLinesWire | None) -> dict[str, list[PlanInstanceWire]]:
    found: dict[str, list[PlanInstanceWire]] = {}
    for instance in plan["instances"] if plan else ():
        found.setdefault(instance["service"], []).append(instance)
    return found


def _unserved(plan: PlanLinesWire | None) -> dict[str, PlanUnservedWire]:
    return {line["service"]: line for line in plan["unserved"]} if plan else {}


def _shapes(mine: Sequence[PlanInstanceWire], missed: PlanUnservedWire | None) -> ServiceShapes:
    shapes = Counter((instance["variant"], instance["batch"], instance["smPercent"]) for instance in mine)
    parts = tuple(
        f"{number} x {variant}, batch {batch}, {sm} %" for (variant, batch, sm), number in sorted(shapes.items())
    )
    return ServiceShapes(
        len(mine),
        sum(instance["ratePerSecond"] for instance in mine),
        missed["ratePerSecond"] if missed else 0.0,
        parts,
    )


def _moves(old: Sequence[PlanInstanceWire], new: Sequence[PlanInstanceWire]) -> dict[str, int]:
    """Counts changes as the contract does: keep, retune or resize on the same GPU; starts and stops pair into moves."""
    counts = dict.fromkeys(("started", "stopped", "moved", "resized", "retuned", "kept"), 0)
    unmatched = list(old)
    starts = 0
    for instance in new:
        there = [other for other in unmatched if _place(other) == _place(instance)]
        same = next((other for other in there if _shape(other) == _shape(instance)), None) or next(iter(there), None)
        if same is None:
            starts += 1
            continue
        unmatched.remove(same)
        kind = "resized" if _shape(same) != _shape(instance) else "kept" if _tuning(same, instance) else "retuned"
        counts[kind] += 1
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
        abs(here - there) <= 1e-9 * max(1.0, abs(there))
        for here, there in (
            (instance["batch"], other["batch"]),
            (instance["batchTimeoutMs"], other["batchTimeoutMs"]),
            (instance["clockMhz"], other["clockMhz"]),
            (instance["ratePerSecond"], other["ratePerSecond"]),
        )
    )


def describe_difference(difference: ServiceDifference) -> str:
    """Returns `2 -> 3 instances: 1 started, 1 resized`."""
    moves = [
        f"{number} {word}"
        for word, number in (
            ("started", difference.started), ("stopped", difference.stopped), ("moved", difference.moved),
            ("resized", difference.resized), ("retuned", difference.retuned),
        )
        if number
    ]  # fmt: skip
    text = f"{difference.before.instances} -> {difference.after.instances} instances"
    return f"{text}: {', '.join(moves)}" if moves else text
