"""Profiles of variants on GPU types where they were never measured, learned from all Profiles there are (OLTunes, O1).

They are for a first plan, until someone measures: latencies are uncertain by the errors of pairs left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

from app.campaigns.profile import profile_name
from app.manifests.model import API_VERSION, Free, Kind, Manifest, WrittenSpec
from app.manifests.uncertain import MEAN_QUANTILE, is_uncertain, value_at
from solvers.factors.choice import LearnedFactors, learn_factors
from solvers.factors.machine import FactorSample

PAIR = ("model", "gpu type")
FEWEST_PAIRS = 6  # of a variant and a GPU type, below which nothing is predicted
NINETY = 1.2815515594600038  # standard deviations of the 0.9 quantile
DIGITS = 5


@dataclass(frozen=True, slots=True)
class PredictedProfiles:
    """Profiles as manifests, how many pairs they were learned from, and the error of pairs left out (a share)."""

    manifests: list[Free]
    pairs: int
    error: float


def predict_profiles(manifests: Sequence[Manifest], *, only_again: bool = False) -> PredictedProfiles | None:
    """Returns a Profile for each variant with a Profile elsewhere and each GPU type that it lacks; None: too little.

    Nothing is learned from predictions: a Profile that was predicted gets new latencies, and else stays as it is. With
    `only_again` no others are returned.
    """
    gpu_types = {each.name: each.spec for each in manifests if each.kind is Kind.GPU_TYPE}
    profiles = {_pair(each.spec): each for each in manifests if each.kind is Kind.PROFILE and "latencyMs" in each.spec}
    predicted = {pair: each for pair, each in profiles.items() if _is_predicted(each.spec)}
    measured: dict[tuple[str, str, str], WrittenSpec] = {
        pair: each.spec for pair, each in profiles.items() if pair not in predicted
    }
    if len(measured) < FEWEST_PAIRS or (only_again and not predicted):
        return None
    samples = [
        _sample(spec, gpu_types, spec["gpuType"], int(batch), int(percent), value_at(latency_ms, MEAN_QUANTILE))
        for _, spec in sorted(measured.items(), key=lambda entry: entry[0])  # the order teaches, too
        for batch, table in sorted(spec["latencyMs"].items())
        for percent, latency_ms in sorted(table.items())
    ]
    found = learn_factors(samples, PAIR)
    if found.errors is None:
        return None
    error = exp(found.errors[0]) - 1
    made = [
        _again(found, predicted[pair], gpu_types, len(measured), error)
        if pair in predicted
        else _profile(found, _other(measured, model, variant), gpu_types, gpu_type, len(measured), error)
        for model, variant in sorted({key[:2] for key in measured})
        for gpu_type in sorted(gpu_types)
        if (pair := (model, variant, gpu_type)) not in measured and (pair in predicted or not only_again)
    ]
    return PredictedProfiles(made, len(measured), error)


def _pair(spec: WrittenSpec) -> tuple[str, str, str]:
    return spec["model"], spec["variant"], spec["gpuType"]


def _is_predicted(spec: WrittenSpec) -> bool:
    """Returns True if each latency was predicted: who has changed one by hand declares them all."""
    return all(
        is_uncertain(value) and value.get("source") == "learned"
        for table in spec["latencyMs"].values()
        for value in table.values()
    )


def _sample(
    spec: WrittenSpec,
    gpu_types: Mapping[str, WrittenSpec],
    gpu_type: str,
    batch: int,
    sm_percent: int,
    latency_ms: float | None = None,
) -> FactorSample:
    """Returns OLTunes' features (Table 3): model, GPU type and its size, batch and SM%; latency and throughput."""
    sheet = gpu_types[gpu_type]
    kinds = {"model": f"{spec['model']}/{spec['variant']}", "family": spec["model"], "gpu type": gpu_type}
    numbers = {
        "ln batch": log(batch),
        "ln sm": log(sm_percent),
        "ln sms": log(sheet["smCount"] * sm_percent / 100),
        "ln memory": log(sheet["memoryGib"]),
        "ln clock": log(max(sheet["clocksMhz"])),
    }
    targets = () if latency_ms is None else (log(latency_ms), log(1000 * batch / latency_ms))
    return FactorSample(kinds, numbers, targets)


def _other(measured: Mapping[tuple[str, str, str], WrittenSpec], model: str, variant: str) -> WrittenSpec:
    """Returns the variant's Profile elsewhere that has most batches: it says what to predict."""
    mine = [spec for key, spec in sorted(measured.items()) if key[:2] == (model, variant)]
    return max(mine, key=lambda spec: len(spec["latencyMs"]))


def _profile(
    found: LearnedFactors,
    spec: WrittenSpec,
    gpu_types: Mapping[str, Mapping[str, object]],
    gpu_type: str,
    pairs: int,
    error: float,
) -> dict[str, object]:
    known = {name: _mark_learned(value) for name, value in spec.items()}
    latencies = _latencies(found, spec, gpu_types, gpu_type, pairs)
    made = {**known, "gpuType": gpu_type, "latencyMs": latencies, "leftOutError": _round(error)}
    made.pop("errorGoal", None)  # of the measurement on the other GPU type
    if "powerW" in spec:
        made["powerW"] = _watts(spec["powerW"], gpu_types[spec["gpuType"]], gpu_types[gpu_type])
    return _manifest({"name": profile_name(spec["model"], spec["variant"], gpu_type)}, made)


def _mark_learned(value: Any) -> Any:
    """Returns a value of another GPU type's Profile, which was not measured on this one."""
    if is_uncertain(value):
        return {**value, "source": "learned"}
    return {key: _mark_learned(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _again(
    found: LearnedFactors,
    stored: Manifest,
    gpu_types: Mapping[str, Mapping[str, object]],
    pairs: int,
    error: float,
) -> dict[str, object]:
    """Returns a Profile that was predicted before, with new latencies at its own batches and shares."""
    spec: WrittenSpec = stored.spec
    latencies = _latencies(found, spec, gpu_types, spec["gpuType"], pairs)
    labels = {"labels": stored.labels} if stored.labels else {}
    return _manifest({"name": stored.name, **labels}, {**spec, "latencyMs": latencies, "leftOutError": _round(error)})


def _latencies(
    found: LearnedFactors,
    spec: WrittenSpec,
    gpu_types: Mapping[str, Mapping[str, object]],
    gpu_type: str,
    pairs: int,
) -> dict[str, dict[str, object]]:
    above = exp(NINETY * (found.errors or (0.0,))[0])
    latencies: dict[str, dict[str, object]] = {}
    for batch, table in spec["latencyMs"].items():
        row: dict[str, object] = {}
        least = float("inf")  # a Profile's latency does not rise with SM%
        for percent in sorted(table, key=int):
            expected = found.learner.predict(_sample(spec, gpu_types, gpu_type, int(batch), int(percent)))[0]
            least = min(least, exp(expected))
            mean, q90 = _round(least), _round(least * above)
            row[str(percent)] = {"mean": mean, "q90": q90, "n": pairs, "source": "learned"}
        latencies[str(batch)] = row
    return latencies


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _manifest(metadata: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": "Profile", "metadata": metadata, "spec": spec}


def _watts(power_w: Any, here: WrittenSpec, there: WrittenSpec) -> Any:
    """Returns the watts as the same share of what the other GPU type may draw above idle."""
    share = (there["maxW"] - there["idleW"]) / max(1e-9, here["maxW"] - here["idleW"])
    if isinstance(power_w, Mapping) and not is_uncertain(power_w):
        return {percent: _round(share * value_at(value, MEAN_QUANTILE)) for percent, value in power_w.items()}
    return _round(share * value_at(power_w, MEAN_QUANTILE))
