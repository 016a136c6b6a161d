"""Profiles of variants on GPU types where they were never measured, learned from all Profiles there are (OLTunes, O1).

They are for a first plan, until someone measures: latencies are uncertain by the errors of pairs left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

from app.campaigns.profile import profile_name
from app.manifests.model import API_VERSION, Kind, Manifest
from app.manifests.uncertain import MEAN_QUANTILE, is_uncertain, value_at
from solvers.factors import FactorSample, LearnedFactors, learned

PAIR = ("model", "gpu type")
FEWEST_PAIRS = 6  # of a variant and a GPU type, below which nothing is predicted
NINETY = 1.2815515594600038  # standard deviations of the 0.9 quantile
DIGITS = 5


@dataclass(frozen=True, slots=True)
class PredictedProfiles:
    """Profiles as manifests, how many pairs they were learned from, and the error of pairs left out (a share)."""

    manifests: list[dict[str, Any]]
    pairs: int
    error: float


def predicted_profiles(manifests: Sequence[Manifest]) -> PredictedProfiles | None:
    """Returns a Profile for each variant with a Profile elsewhere and each GPU type that it lacks; None: too little."""
    gpu_types = {each.name: each.spec for each in manifests if each.kind is Kind.GPU_TYPE}
    profiles: list[Mapping[str, Any]] = [each.spec for each in manifests if each.kind is Kind.PROFILE]
    specs = [spec for spec in profiles if "latencyMs" in spec]
    measured = {(spec["model"], spec["variant"], spec["gpuType"]): spec for spec in specs}
    if len(measured) < FEWEST_PAIRS:
        return None
    samples = [
        _sample(spec, gpu_types, spec["gpuType"], int(batch), int(percent), value_at(latency_ms, MEAN_QUANTILE))
        for spec in measured.values()
        for batch, table in spec["latencyMs"].items()
        for percent, latency_ms in table.items()
    ]
    found = learned(samples, PAIR)
    if found.errors is None:
        return None
    made = [
        _profile(found, _other(measured, model, variant), gpu_types, gpu_type, len(measured))
        for model, variant in sorted({key[:2] for key in measured})
        for gpu_type in sorted(gpu_types)
        if (model, variant, gpu_type) not in measured
    ]
    return PredictedProfiles(made, len(measured), exp(found.errors[0]) - 1)


def _sample(
    spec: Mapping[str, Any],
    gpu_types: Mapping[str, Mapping[str, Any]],
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


def _other(measured: Mapping[tuple[str, str, str], Mapping[str, Any]], model: str, variant: str) -> Mapping[str, Any]:
    """Returns the variant's Profile elsewhere that has most batches: it says what to predict."""
    mine = [spec for key, spec in sorted(measured.items()) if key[:2] == (model, variant)]
    return max(mine, key=lambda spec: len(spec["latencyMs"]))


def _profile(
    found: LearnedFactors,
    spec: Mapping[str, Any],
    gpu_types: Mapping[str, Mapping[str, Any]],
    gpu_type: str,
    pairs: int,
) -> dict[str, Any]:
    above = exp(NINETY * (found.errors or (0.0,))[0])
    latencies: dict[str, dict[str, Any]] = {}
    for batch, table in spec["latencyMs"].items():
        row: dict[str, Any] = {}
        least = float("inf")  # a Profile's latency does not rise with SM%
        for percent in sorted(table, key=int):
            expected = found.learner.predict(_sample(spec, gpu_types, gpu_type, int(batch), int(percent)))[0]
            least = min(least, exp(expected))
            mean, q90 = (float(f"{value:.{DIGITS}g}") for value in (least, least * above))
            row[str(percent)] = {"mean": mean, "q90": q90, "n": pairs, "source": "learned"}
        latencies[str(batch)] = row
    made = {**spec, "gpuType": gpu_type, "latencyMs": latencies}
    if "powerW" in spec:
        made["powerW"] = _watts(spec["powerW"], gpu_types[spec["gpuType"]], gpu_types[gpu_type])
    return {
        "apiVersion": API_VERSION,
        "kind": "Profile",
        "metadata": {"name": profile_name(spec["model"], spec["variant"], gpu_type)},
        "spec": made,
    }


def _watts(power_w: Any, here: Mapping[str, Any], there: Mapping[str, Any]) -> Any:
    """Returns the watts as the same share of what the other GPU type may draw above idle."""
    share = (there["maxW"] - there["idleW"]) / max(1e-9, here["maxW"] - here["idleW"])
    if isinstance(power_w, Mapping) and not is_uncertain(power_w):
        return {
            percent: float(f"{share * value_at(value, MEAN_QUANTILE):.{DIGITS}g}") for percent, value in power_w.items()
        }
    return float(f"{share * value_at(power_w, MEAN_QUANTILE):.{DIGITS}g}")
