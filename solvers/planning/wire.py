"""Plans as JSON, in the contract's words: out as it is written there, in with every fault named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any, TypeAlias

from solvers.planning.plan import Certificate, Changes, Cost, Plan, Releasable, Unplaced, Unserved
from solvers.planning.problem import Instance, PlacedJob, Problem

JSON: TypeAlias = Any  # whatever a file may hold
LARGEST = 1e12  # of any number, as in manifests
LARGEST_SUM = 1e30  # of what adds up or multiplies such numbers
SUMS = {"resourceCost", "unservedCost", "jobCost", "churnCost", "bound", "perHour"}
MOST_FAULTS = 100  # reported; more of them do not help


class WrongPlan(ValueError):
    """The value is not a plan; `faults` names each field, its value and what is allowed."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults[:3]))
        self.faults = list(faults)


# Out


def to_json(plan: Plan, problem: Problem) -> dict[str, Any]:
    """Returns the plan as the contract writes it; `problem` says whether a job makes steps or answers requests."""
    return written(plan, {name for name, job in problem.jobs.items() if job.kind == "offline"})


def written(plan: Plan, offline: Collection[str]) -> dict[str, Any]:
    """Returns the same as `to_json`, where only the names of `offline` jobs are known."""
    return {
        "instances": [_instance_out(instance) for instance in plan.instances],
        "jobs": [_job_out(placed, offline) for placed in plan.jobs],
        "unserved": [
            {
                "service": entry.service,
                "ratePerSecond": entry.rate_per_second,
                "reason": entry.reason,
                "relaxation": entry.relaxation,
            }
            for entry in plan.unserved
        ],
        "unplaced": [
            {"job": entry.job, "reason": entry.reason, "relaxation": entry.relaxation} for entry in plan.unplaced
        ],
        "warnings": list(plan.warnings),
        "releasable": [{"node": entry.node, "perHour": entry.price_per_hour} for entry in plan.releasable],
        "changes": {name: getattr(plan.changes, name) for name in CHANGES},
        "certificate": _certificate_out(plan.certificate) if plan.certificate else None,
    }


def _instance_out(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "service": instance.service,
        "node": instance.node,
        "gpu": instance.gpu,
        "variant": instance.variant,
        "batch": instance.batch,
        "batchTimeoutMs": instance.batch_timeout_ms,
        "smPercent": instance.sm_percent,
        "memoryGib": instance.memory_gib,
        "clockMhz": instance.clock_mhz,
        "ratePerSecond": instance.rate_per_second,
        "predicted": {"execMs": instance.exec_ms, "latencyMs": instance.latency_ms},
    }


def _job_out(placed: PlacedJob, offline: Collection[str]) -> dict[str, Any]:
    speed = SPEEDS[1] if placed.job in offline else SPEEDS[0]
    return {
        "job": placed.job,
        "node": placed.node,
        "gpu": placed.gpu,
        "smPercent": placed.sm_percent,
        "memoryGib": placed.memory_gib,
        "predicted": {speed: placed.units_per_second},
    }


def _certificate_out(certificate: Certificate) -> dict[str, Any]:
    cost, gap = certificate.cost, certificate.gap
    return {
        "cost": cost.total,
        "resourceCost": cost.resource,
        "unservedCost": cost.unserved,
        "jobCost": cost.job,
        "churnCost": cost.churn,
        "bound": certificate.bound,
        "gap": None if gap is None else round(gap, 6),
        "boundAgeSeconds": None if certificate.bound is None else certificate.bound_age_seconds,
        "noBoundReason": certificate.no_bound_reason,
        "method": certificate.method,
        "work": certificate.work,
        "seconds": certificate.seconds,
    }


# In

CHANGES = ("keep", "retune", "resize", "start", "stop", "move")
SPEEDS = ("stepsPerSecond", "requestsPerSecond")


def from_json(value: JSON, problem: Problem) -> Plan:
    """Reads a plan from a JSON value; raises WrongPlan if it is not one.

    Numbers need only be numbers: the judge decides if 30.5 may be a share of SMs. A clock left out is the highest of
    the GPU's type. Fields that the contract lacks are not read.
    """
    faults: list[str] = []
    whole = _Fields("", value, faults)
    plan = Plan(
        instances=_each(whole, "instances", lambda fields: _instance_in(fields, problem), required=True),
        jobs=_each(whole, "jobs", _job_in),
        unserved=_each(whole, "unserved", _unserved_in),
        unplaced=_each(whole, "unplaced", _unplaced_in),
        warnings=tuple(_texts(whole, "warnings")),
        releasable=_each(whole, "releasable", _releasable_in),
        changes=_changes_in(whole),
        certificate=_certificate_in(whole),
    )
    if faults:
        more = [f"and {len(faults) - MOST_FAULTS} more faults"] if len(faults) > MOST_FAULTS else []
        raise WrongPlan([*faults[:MOST_FAULTS], *more])
    return plan


class _Fields:
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

    def inner(self, field: str) -> _Fields:
        """Reads a mapping that may be left out."""
        value = self.values.get(field)
        path = f"{self.path}.{field}" if self.path else field
        return _Fields(path, {} if value is None else value, self.faults)


WHOLE = {"gpu", "batch", "smPercent", "work", *CHANGES}


def _each(whole: _Fields, field: str, read: Callable[[_Fields], Any], *, required: bool = False) -> tuple[Any, ...]:
    value = whole.values.get(field)
    if value is None and not required:
        return ()
    if not isinstance(value, list):
        if field in whole.values:
            whole.fault(field, value, "a list")
        else:
            whole.missing(field, "a list")
        return ()
    return tuple(read(_Fields(f"{field}[{at}]", entry, whole.faults)) for at, entry in enumerate(value))


def _texts(whole: _Fields, field: str) -> list[str]:
    value = whole.values.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        whole.fault(field, value, "a list of texts")
        return []
    for at, entry in enumerate(value):
        if not isinstance(entry, str):
            whole.fault(f"{field}[{at}]", entry, "a string")
    return [entry for entry in value if isinstance(entry, str)]


def _instance_in(fields: _Fields, problem: Problem) -> Instance:
    node, predicted = fields.text("node"), fields.inner("predicted")
    top = problem.type_of(node).top_clock_mhz if node in problem.nodes else LARGEST
    return Instance(
        id=fields.text("id", ""),
        service=fields.text("service"),
        node=node,
        gpu=fields.number("gpu"),
        variant=fields.text("variant"),
        batch=fields.number("batch"),
        batch_timeout_ms=fields.number("batchTimeoutMs", 0.0),
        sm_percent=fields.number("smPercent"),
        memory_gib=fields.number("memoryGib"),
        clock_mhz=fields.number("clockMhz", top),
        rate_per_second=fields.number("ratePerSecond"),
        exec_ms=predicted.number("execMs", 0.0),
        latency_ms=predicted.number("latencyMs", 0.0),
    )


def _job_in(fields: _Fields) -> PlacedJob:
    predicted = fields.inner("predicted")
    return PlacedJob(
        job=fields.text("job"),
        node=fields.text("node"),
        gpu=fields.number("gpu"),
        sm_percent=fields.number("smPercent"),
        memory_gib=fields.number("memoryGib"),
        units_per_second=next((predicted.number(speed) for speed in SPEEDS if speed in predicted.values), 0.0),
    )


def _unserved_in(fields: _Fields) -> Unserved:
    return Unserved(
        fields.text("service"), fields.number("ratePerSecond"), fields.text("reason", ""), fields.text("relaxation", "")
    )


def _unplaced_in(fields: _Fields) -> Unplaced:
    return Unplaced(fields.text("job"), fields.text("reason", ""), fields.text("relaxation", ""))


def _releasable_in(fields: _Fields) -> Releasable:
    return Releasable(fields.text("node"), fields.number("perHour"))


def _changes_in(whole: _Fields) -> Changes:
    fields = whole.inner("changes")
    return Changes(**{name: fields.number(name, 0) for name in CHANGES})


def _certificate_in(whole: _Fields) -> Certificate | None:
    if whole.values.get("certificate") is None:
        return None
    fields = whole.inner("certificate")
    cost = Cost(
        fields.number("resourceCost", 0.0),
        fields.number("unservedCost", 0.0),
        fields.number("jobCost", 0.0),
        fields.number("churnCost", 0.0),
    )
    bound = None if fields.values.get("bound") is None else fields.number("bound")
    work, seconds = fields.number("work", 0), fields.number("seconds", 0.0)
    age_seconds, reason = fields.number("boundAgeSeconds", 0.0), fields.text("noBoundReason", "")
    return Certificate(cost, bound, fields.text("method", ""), work, seconds, age_seconds, reason)


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
