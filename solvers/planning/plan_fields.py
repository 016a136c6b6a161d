"""Reads the fields of a plan's JSON: a wrong one is noted with its path, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor, isfinite, log10
from typing import Any, TypeAlias

JSON: TypeAlias = Any  # whatever a file may hold
LARGEST = 1e12  # of any number, as in manifests
ROUNDING = 1e-3  # of a thousandth: a share of all but rounding is all
LARGEST_SUM = 1e30  # of what adds up or multiplies such numbers
SUMS = {"resourceCost", "unservedCost", "jobCost", "churnCost", "bound", "programme", "perHour"}
OTHER_PLANNERS = "other planners, by their rules as we read them"
CHANGES = ("keep", "retune", "resize", "start", "stop", "move")
CHANGE_VERBS = {
    "start": "start",
    "stop": "stop",
    "move": "move",
    "resize": "resize",
    "retune": "change batch or clock of",
}


class PlanFields:
    """A mapping of the plan; a wrong field is noted, and a harmless value takes its place."""

    def __init__(self, path: str, value: JSON, faults: list[str]) -> None:
        self.path = path
        self.faults = faults
        self.values: Mapping[str, JSON] = value if isinstance(value, dict) else {}
        self.is_mapping = isinstance(value, dict)
        if not self.is_mapping:
            self.fault("", value, "a mapping")

    def fault(self, field: str, value: JSON, allowed: str) -> None:
        at = ".".join(part for part in (self.path, field) if part) or "the plan"
        self.faults.append(f"{at}: {shown(value)} is not allowed (allowed: {allowed})")

    def missing(self, field: str, allowed: str) -> None:
        if not self.is_mapping:
            return  # reported already
        at = f"{self.path}.{field}" if self.path else field
        self.faults.append(f"{at}: this field is required (allowed: {allowed})")

    def number(self, field: str, default: float | None = None) -> Any:
        value = self.values.get(field)
        if value is None and default is not None:
            return default
        most = LARGEST_SUM if field in SUMS else LARGEST
        allowed = "a number from -1e12 to 1e12" if most == LARGEST else "a number from -1e30 to 1e30"
        if field not in self.values:
            self.missing(field, allowed)
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not -most <= value <= most:
            self.fault(field, value, allowed)
        else:
            return int(value) if value == int(value) and field in WHOLE else value
        return 0

    def text(self, field: str, default: str | None = None) -> str:
        value = self.values.get(field)
        if value is None and default is not None:
            return default
        if field not in self.values:
            self.missing(field, "a string")
        elif not isinstance(value, str):
            self.fault(field, value, "a string")
        else:
            return value
        return ""

    def each(self, field: str, read: Callable[[PlanFields], Any], *, required: bool = False) -> tuple[Any, ...]:
        """Reads a list of mappings, which may be left out unless it is required."""
        value = self.values.get(field)
        if value is None and not required:
            return ()
        if not isinstance(value, list):
            if field in self.values:
                self.fault(field, value, "a list")
            else:
                self.missing(field, "a list")
            return ()
        at = f"{self.path}.{field}" if self.path else field
        return tuple(read(PlanFields(f"{at}[{number}]", entry, self.faults)) for number, entry in enumerate(value))

    def inner(self, field: str) -> PlanFields:
        """Reads a mapping that may be left out."""
        value = self.values.get(field)
        path = f"{self.path}.{field}" if self.path else field
        return PlanFields(path, {} if value is None else value, self.faults)


WHOLE = {"gpu", "batch", "priority", "smPercent", "work", *CHANGES}


def shown(value: JSON) -> str:
    """Writes a value for a sentence: short, on one line, and without terminal control characters."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, float) and not isfinite(value):
        return "a number that is not finite"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a number of many digits"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = repr(value) if isinstance(value, str) else f"{value}"
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text)} characters)"


def held_gpus(line: Mapping[str, Any]) -> list[int]:
    """Returns every GPU that an instance or a job of a plan's JSON holds on its node."""
    return list(line.get("gpus") or [line["gpu"]])


def spell_changes(changes: Mapping[str, object]) -> str:
    """Spells what a plan changes, `start 2 instances, move 5`; an empty text if it changes nothing."""
    made = [(verb, changes[name]) for name, verb in CHANGE_VERBS.items() if changes.get(name)]
    nouns = [f" instance{'s' if number != 1 else ''}" if at == 0 else "" for at, (_, number) in enumerate(made)]
    return ", ".join(f"{verb} {number}{noun}" for (verb, number), noun in zip(made, nouns, strict=True))


def spell_gap(cost: float, bound: float | None, programme: float | None) -> str:
    """Spells how much of a gap is the bound's own and how much is above its programme; empty where that is unknown."""
    if bound is None or programme is None or not bound <= programme < cost:
        return ""
    below, above = programme - bound, cost - programme
    return f" ({below:.4g} below the bound's programme of {programme:.6g}, {above:.4g} above)"


def gpu_bound(certificate: Mapping[str, Any]) -> float | None:
    """Returns what the GPUs of any plan cost at least that leaves no more unserved; None where a penalty hides it."""
    bound, penalty = certificate.get("bound"), certificate.get("unservedCost") or 0.0
    return None if bound is None or bound <= penalty else bound - penalty


def spell_gap_of_gpus(certificate: Mapping[str, Any]) -> str:
    """Spells the gap as `spell_gap` does, without the penalty for what is unserved."""
    penalty, programme = certificate.get("unservedCost") or 0.0, certificate.get("programme")
    rest = None if programme is None else programme - penalty
    return spell_gap(certificate["cost"] - penalty, gpu_bound(certificate), rest)


def spell_shortfall(shortfall: Mapping[str, JSON]) -> str:
    """Spells what a plan leaves of a priority and all above, and how much of it every plan leaves, rounded down."""
    left, asked, bound = (shortfall[name] for name in ("unservedPerSecond", "ratePerSecond", "boundPerSecond"))
    words = f"priority {shortfall['priority']} and above: {left:,.6g} of {asked:,.6g} requests a second unserved"
    if not bound:
        return f"{words}; {'no bound known' if bound is None else 'the GPUs may have room for all of them'}"
    digits = 3 - floor(log10(bound))
    least = floor(bound * 10.0**digits) / 10.0**digits
    return f"{words}; at least {least:,.6g} by any plan on these GPUs, by proof"


def spell_other(other: Mapping[str, Any]) -> str:
    """Spells what another planner's plan pays and serves, `morak 10.2, serves 94 %`; no penalty is added."""
    if other["resourceCost"] is None:
        return f"{other['planner']} breaks a rule"
    churn = f" and {other['churnCost']:.4g} once" if other["churnCost"] else ""
    served = floor(1000 * other["servedShare"] + ROUNDING) / 10
    serves = "all" if served >= 100 else f"{served:g} %"
    age = f", {other['ageSeconds']:.0f} s ago" if other["ageSeconds"] else ""
    return f"{other['planner']} {other['resourceCost']:.4g}{churn}, serves {serves}{age}"
