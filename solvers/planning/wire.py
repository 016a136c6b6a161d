"""Plans as JSON, in the contract's words: out as it is written there, in with every fault named."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NotRequired, TypedDict

from solvers.planning.certificate_wire import PlanCertificateWire, certificate_in, certificate_out
from solvers.planning.plan import Changes, Plan, Releasable, Unplaced, Unserved
from solvers.planning.plan_fields import CHANGES, JSON, LARGEST, PlanFields
from solvers.planning.problem import Instance, PlacedJob, Problem

MOST_FAULTS = 100  # reported; more of them do not help
SPEEDS = ("stepsPerSecond", "requestsPerSecond")


class HeldGpusWire(TypedDict):
    """A GPU, or several of a node."""

    gpu: NotRequired[int]
    gpus: NotRequired[list[int]]


class PredictedTimesWire(TypedDict):
    """Predicted times; of a language model latencyMs is that of the first token."""

    execMs: float
    latencyMs: float
    ttftMs: NotRequired[float]
    tpotMs: NotRequired[float]


class PlanInstanceWire(HeldGpusWire):
    """An instance of a service."""

    id: str
    service: str
    node: str
    variant: str
    batch: int
    smPercent: float
    memoryGib: float
    ratePerSecond: float
    predicted: PredictedTimesWire
    batchTimeoutMs: float
    clockMhz: float


class PlanJobWire(HeldGpusWire):
    """A job on a GPU; `predicted` has its speed, as stepsPerSecond or requestsPerSecond."""

    job: str
    node: str
    smPercent: float
    memoryGib: float
    predicted: dict[str, float]


class PlanUnservedWire(TypedDict):
    """A rate that the plan does not serve, and the least change that would help."""

    service: str
    ratePerSecond: float
    reason: str
    relaxation: str


class PlanUnplacedWire(TypedDict):
    """A job that waits."""

    job: str
    reason: str
    relaxation: str


class ReleasableNodeWire(TypedDict):
    """A node that the fleet could give back."""

    node: str
    perHour: float


class PlanChangesWire(TypedDict):
    """How many instances a plan changes, by what is done."""

    keep: int
    retune: int
    resize: int
    start: int
    stop: int
    move: int


class PlanLinesWire(TypedDict):
    """What a plan runs and leaves out."""

    instances: list[PlanInstanceWire]
    jobs: list[PlanJobWire]
    unserved: list[PlanUnservedWire]
    unplaced: list[PlanUnplacedWire]


class PlanBodyWire(PlanLinesWire):
    """What a plan runs, and its proof."""

    warnings: list[str]
    releasable: list[ReleasableNodeWire]
    changes: PlanChangesWire
    certificate: PlanCertificateWire | None


def to_json(plan: Plan, problem: Problem) -> PlanBodyWire:
    """Returns the plan as the contract writes it; `problem` says whether a job makes steps or answers requests."""
    return written(plan, {name for name, job in problem.jobs.items() if job.kind == "offline"})


def written(plan: Plan, offline: Collection[str]) -> PlanBodyWire:
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
        "changes": changes_wire(plan.changes),
        "certificate": certificate_out(plan.certificate) if plan.certificate else None,
    }


def changes_wire(changes: Changes) -> PlanChangesWire:
    """Returns how many instances a plan changes, by what is done."""
    return {
        "keep": changes.keep,
        "retune": changes.retune,
        "resize": changes.resize,
        "start": changes.start,
        "stop": changes.stop,
        "move": changes.move,
    }


def _instance_out(instance: Instance) -> PlanInstanceWire:
    return {
        "id": instance.id,
        "service": instance.service,
        "node": instance.node,
        **gpus_wire(instance),
        "variant": instance.variant,
        "batch": instance.batch,
        "batchTimeoutMs": instance.batch_timeout_ms,
        "smPercent": instance.sm_percent,
        "memoryGib": instance.memory_gib,
        "clockMhz": instance.clock_mhz,
        "ratePerSecond": instance.rate_per_second,
        "predicted": _predicted(instance),
    }


def gpus_wire(line: Instance | PlacedJob) -> HeldGpusWire:
    return {"gpus": list(line.gpus)} if line.gpus else {"gpu": line.gpu}


def _predicted(instance: Instance) -> PredictedTimesWire:
    """Returns the times of a batch server, or of tokens: latencyMs is then the time to the first token."""
    found: PredictedTimesWire = {"execMs": instance.exec_ms, "latencyMs": instance.latency_ms}
    return {**found, "ttftMs": instance.latency_ms, "tpotMs": instance.tpot_ms} if instance.tpot_ms else found


def _job_out(placed: PlacedJob, offline: Collection[str]) -> PlanJobWire:
    speed = SPEEDS[1] if placed.job in offline else SPEEDS[0]
    return {
        "job": placed.job,
        "node": placed.node,
        **gpus_wire(placed),
        "smPercent": placed.sm_percent,
        "memoryGib": placed.memory_gib,
        "predicted": {speed: placed.units_per_second},
    }


# In


class WrongPlan(ValueError):
    """The value is not a plan; `faults` names each field, its value and what is allowed."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults[:3]))
        self.faults = list(faults)


def from_json(value: JSON, problem: Problem) -> Plan:
    """Reads a plan from a JSON value; raises WrongPlan if it is not one.

    Numbers need only be numbers: the judge decides if 30.5 may be a share of SMs. A clock left out is the highest of
    the GPU's type. Fields that the contract lacks are not read.
    """
    faults: list[str] = []
    whole = PlanFields("", value, faults)
    plan = Plan(
        instances=whole.each("instances", lambda fields: _instance_in(fields, problem), required=True),
        jobs=whole.each("jobs", _job_in),
        unserved=whole.each("unserved", _unserved_in),
        unplaced=whole.each("unplaced", _unplaced_in),
        warnings=tuple(_texts(whole, "warnings")),
        releasable=whole.each("releasable", _releasable_in),
        changes=_changes_in(whole),
        certificate=certificate_in(whole),
    )
    if faults:
        more = [f"and {len(faults) - MOST_FAULTS} more faults"] if len(faults) > MOST_FAULTS else []
        raise WrongPlan([*faults[:MOST_FAULTS], *more])
    return plan


def _texts(whole: PlanFields, field: str) -> list[str]:
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


def _instance_in(fields: PlanFields, problem: Problem) -> Instance:
    node, predicted = fields.text("node"), fields.inner("predicted")
    gpus = _gpus_in(fields)
    top = problem.type_of(node).top_clock_mhz if node in problem.nodes else LARGEST
    return Instance(
        id=fields.text("id", ""),
        service=fields.text("service"),
        node=node,
        gpu=gpus[0] if gpus else fields.number("gpu"),
        variant=fields.text("variant"),
        batch=fields.number("batch"),
        batch_timeout_ms=fields.number("batchTimeoutMs", 0.0),
        sm_percent=fields.number("smPercent"),
        memory_gib=fields.number("memoryGib"),
        clock_mhz=fields.number("clockMhz", top),
        rate_per_second=fields.number("ratePerSecond"),
        exec_ms=predicted.number("execMs", 0.0),
        latency_ms=predicted.number("latencyMs", 0.0),
        gpus=gpus,
        tpot_ms=predicted.number("tpotMs", 0.0),
    )


def _gpus_in(fields: PlanFields) -> tuple[int, ...]:
    """Reads the indexes of all GPUs of an instance on several; empty if it states `gpu`."""
    value = fields.values.get("gpus")
    if value is None:
        return ()
    if "gpu" in fields.values:
        fields.fault("gpus", value, "gpu or gpus, not both")
    elif not isinstance(value, list) or len(value) < 2 or not all(_is_index(index) for index in value):
        fields.fault("gpus", value, "a list of at least two whole numbers from 0 to 1e12")
    else:
        return tuple(int(index) for index in value)
    return ()


def _is_index(value: JSON) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _job_in(fields: PlanFields) -> PlacedJob:
    predicted, gpus = fields.inner("predicted"), _gpus_in(fields)
    return PlacedJob(
        job=fields.text("job"),
        node=fields.text("node"),
        gpu=gpus[0] if gpus else fields.number("gpu"),
        sm_percent=fields.number("smPercent"),
        memory_gib=fields.number("memoryGib"),
        units_per_second=next((predicted.number(speed) for speed in SPEEDS if speed in predicted.values), 0.0),
        gpus=gpus,
    )


def _unserved_in(fields: PlanFields) -> Unserved:
    return Unserved(
        fields.text("service"), fields.number("ratePerSecond"), fields.text("reason", ""), fields.text("relaxation", "")
    )


def _unplaced_in(fields: PlanFields) -> Unplaced:
    return Unplaced(fields.text("job"), fields.text("reason", ""), fields.text("relaxation", ""))


def _releasable_in(fields: PlanFields) -> Releasable:
    return Releasable(fields.text("node"), fields.number("perHour"))


def _changes_in(whole: PlanFields) -> Changes:
    fields = whole.inner("changes")
    return Changes(**{name: fields.number(name, 0) for name in CHANGES})
