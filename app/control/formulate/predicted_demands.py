"""Jobs that state their layers but no pressure or sensitivity: both are predicted from jobs that state all three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from app.control.domain.specs import Spec, job_tables
from app.manifests.model import Free, Manifest
from app.manifests.uncertain import MEAN_QUANTILE, PARTS, is_pair, profile_at

if TYPE_CHECKING:
    from solvers.interference.layers import PredictedValues

# The GPU type, the SM% to predict at, and the layers by kind.
LayerQuestion: TypeAlias = tuple[str, tuple[int, ...], tuple[tuple[str, int], ...]]
FIELDS = ("pressure", "sensitivity")
MOST_PRESSURE = 1.0
MOST_JOBS = 500  # different ones that are compared


@dataclass(frozen=True, slots=True)
class PredictedDemand:
    """The fields of a job on a GPU type that were predicted."""

    fields: tuple[str, ...]
    error: float
    jobs: int

    def __str__(self) -> str:
        what = " and ".join(self.fields)
        learned = f"predicted from its layers, as in {self.jobs} jobs that state them"
        return f"{what} {learned} (error of left-out jobs {self.error:.0%})"


def complete_jobs(jobs: Sequence[Manifest]) -> list[Manifest]:
    """Returns the jobs with what was predicted of them; a field that is stated stays as it is."""
    predicted = _predicted(jobs)
    return [_completed(job, predicted.get((job.tenant, job.name), {})) for job in jobs]


def _completed(job: Manifest, by_type: Mapping[str, tuple[PredictedDemand, Spec]]) -> Manifest:
    if not by_type:
        return job
    profiles: Free = {
        gpu_type: {**profile, **by_type[gpu_type][1]} if gpu_type in by_type else profile
        for gpu_type, profile in _profiles(job).items()
    }
    return replace(job, spec={**job.spec, "profiles": profiles})


def list_predicted_demands(jobs: Sequence[Manifest], tenant: str, name: str) -> dict[str, PredictedDemand]:
    """Returns what was predicted of one job, by GPU type."""
    return {gpu_type: demand for gpu_type, (demand, _) in _predicted(jobs).get((tenant, name), {}).items()}


def _profiles(job: Manifest) -> Mapping[str, Spec]:
    spec: Spec = job.spec
    profiles: Mapping[str, Spec] = spec["profiles"]
    return profiles


def _predicted(jobs: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, tuple[PredictedDemand, Spec]]]:
    found: dict[tuple[str, str], dict[str, tuple[PredictedDemand, Spec]]] = {}
    asked: dict[LayerQuestion, PredictedValues | None] = {}  # jobs are often the same but for their names
    for job in jobs:
        for gpu_type, profile in _profiles(job).items():
            missing = tuple(field for field in FIELDS if field not in profile)
            if not missing or not profile.get("layers"):
                continue
            percents = tuple(sorted(int(percent) for percent in job_tables(job.spec)[gpu_type][0]))
            question = (gpu_type, percents, tuple(sorted(profile["layers"].items())))
            if question not in asked:
                asked[question] = _predict(jobs, question)
            values = asked[question]
            if values:
                demand = PredictedDemand(missing, values.error, values.jobs)
                found.setdefault((job.tenant, job.name), {})[gpu_type] = (demand, _fields(values, percents, missing))
    return found


def _predict(jobs: Sequence[Manifest], question: LayerQuestion) -> PredictedValues | None:
    """Predicts pressures at each SM% of the job's speeds, and sensitivities, from jobs on the same GPU type."""
    # Imported here: it loads scipy, which most fleets need not.
    from solvers.interference.layers import LayeredValues, predict_from_layers

    gpu_type, percents, layers = question
    others = [profile_at(_profiles(job).get(gpu_type, {}), MEAN_QUANTILE) for job in jobs]
    stated = [each for each in others if each.get("layers") and all(field in each for field in FIELDS)]
    parts = PARTS if any(is_pair(each[field]) for each in stated for field in FIELDS) else PARTS[:1]
    measured = {(tuple(sorted(each["layers"].items())), _list_values(each, percents, parts)) for each in stated}
    known = [LayeredValues(dict(counts), values) for counts, values in sorted(measured)[:MOST_JOBS]]
    return predict_from_layers(known, dict(layers))


def _list_values(profile: Spec, percents: Sequence[int], parts: Sequence[str]) -> tuple[float, ...]:
    """Returns a pressure at each SM%, then a sensitivity, of each part."""
    found: list[float] = []
    for part in parts:
        pressure, sensitivity = (_read_part(profile[field], part) for field in FIELDS)
        found += [*(_read_pressure(pressure, percent) for percent in percents), float(sensitivity)]
    return tuple(found)


def _read_part(value: Any, part: str) -> Any:
    """Returns what is stated of compute or of bandwidth; a plain value is of compute."""
    if is_pair(value):
        return value.get(part, 0.0)
    return value if part == PARTS[0] else 0.0


def _fields(values: PredictedValues, percents: Sequence[int], missing: Sequence[str]) -> Spec:
    """Returns what is missing as uncertain values, of which plans take the policy's quantile."""
    found: dict[str, list[Any]] = {field: [] for field in FIELDS}
    count = len(percents) + 1
    for first in range(0, len(values.expected), count):
        mosts = [*([MOST_PRESSURE] * len(percents)), float("inf")]
        numbers = zip(values.expected[first : first + count], values.planned[first : first + count], mosts, strict=True)
        each = [
            {"mean": min(most, mean), "q90": min(most, q90), "n": values.jobs, "source": "learned"}
            for mean, q90, most in numbers
        ]
        found["pressure"].append({str(percent): value for percent, value in zip(percents, each, strict=False)})
        found["sensitivity"].append(each[-1])
    return {field: found[field][0] if len(found[field]) == 1 else dict(zip(PARTS, found[field], strict=True))
            for field in missing}  # fmt: skip


def _read_pressure(pressure: Mapping[str, float] | float, sm_percent: int) -> float:
    """Reads a pressure, one number or by SM%: linear between points, flat beyond them."""
    if not isinstance(pressure, Mapping):
        return float(pressure)
    points = sorted((int(percent), float(value)) for percent, value in pressure.items())
    for (low, start), (high, end) in pairwise(points):
        if low <= sm_percent <= high:
            return start + (end - start) * (sm_percent - low) / (high - low)
    return points[0][1] if sm_percent < points[0][0] else points[-1][1]
