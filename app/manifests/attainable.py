"""Finds whether any profiled hardware could meet a service's SLO, and if none could, what would help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.manifests.fleet import PolicySpec
from app.manifests.model import WrittenSpec
from app.manifests.uncertain import profile_at

EXEC_MARGIN: float = PolicySpec.model_fields["exec_margin"].default
SLO_ATTAINABLE = "SloAttainable"  # the condition that applying judges
PROFILE_QUANTILE: float = PolicySpec.model_fields["profile_quantile"].default


class SloReason(StrEnum):
    """The reason why an SLO can or cannot be met."""

    ATTAINABLE = "Attainable"
    NO_VARIANT = "NoVariant"
    NO_PROFILE = "NoProfile"
    SLO_BELOW_FASTEST_EXEC = "SloBelowFastestExec"


@dataclass(frozen=True, slots=True)
class SloCondition:
    """A condition in the status of a service."""

    status: str  # True, False
    reason: SloReason
    message: str
    type: str = SLO_ATTAINABLE


def slo_condition(
    service: WrittenSpec,
    model: WrittenSpec,
    profiles: Iterable[WrittenSpec],
    policy: WrittenSpec | None = None,
) -> SloCondition:
    """Returns the verdict from the specs of the service, its model, the model's profiles and the policy alone.

    A request that finds a free instance takes one execution, so the fastest execution at the highest clock, with
    the policy's margin, is the least SLO that any load could meet. The GPUs of the fleet are not looked at.
    """
    accuracy = {variant["name"]: variant["accuracy"] for variant in model["variants"]}
    promise = service.get("meanAccuracy") or 0.0
    # variants below the promised mean serve only beside one that is not below it
    admitted = [name for name in list_admitted_variants(service, model) if accuracy[name] >= promise]
    if not admitted:
        return SloCondition("False", SloReason.NO_VARIANT, _no_variant(service, model))
    types: list[str] | None = service.get("gpuTypes")
    quantile = (policy or {}).get("profileQuantile", PROFILE_QUANTILE)
    if "ttftMs" in service["slo"]:
        return _tokens_condition(service, admitted, [profile_at(profile, quantile) for profile in profiles])
    fastest: tuple[float, str, str] | None = None
    for profile in profiles:
        if "latencyMs" in profile and profile["variant"] in admitted and (types is None or profile["gpuType"] in types):
            found = (fastest_exec_ms(profile_at(profile, quantile)), profile["variant"], profile["gpuType"])
            fastest = found if fastest is None else min(fastest, found)
    if fastest is None:
        return _no_profile(service, admitted)
    exec_ms, variant, gpu_type = fastest
    margin = (policy or {}).get("execMargin", EXEC_MARGIN)
    least = exec_ms * (1 + margin)
    slo = service["slo"]["latencyMs"]
    numbers = (
        f"the fastest execution is {exec_ms:.4g} ms ({variant} on {gpu_type}),"
        f" {least:.4g} ms with the margin of {100 * margin:.3g} %"
    )
    if least > slo:
        message = f"no request can finish within {slo:g} ms, even alone: {numbers}; under load it takes longer"
        return SloCondition("False", SloReason.SLO_BELOW_FASTEST_EXEC, message)
    return SloCondition("True", SloReason.ATTAINABLE, f"{numbers}; the SLO is {slo:g} ms")


def list_admitted_variants(service: WrittenSpec, model: WrittenSpec) -> list[str]:
    """Returns the model's variants that satisfy `variants` and `minAccuracy`, in the model's order.

    There are none where even the most accurate of them is below `meanAccuracy`.
    """
    wanted = service.get("variants")
    least = service.get("minAccuracy", 0)
    found = [
        variant
        for variant in model["variants"]
        if (wanted is None or variant["name"] in wanted) and variant["accuracy"] >= least
    ]
    best = max((variant["accuracy"] for variant in found), default=0.0)
    return [variant["name"] for variant in found] if best >= (service.get("meanAccuracy") or 0.0) else []


def fastest_exec_ms(profile: WrittenSpec) -> float:
    """Returns the fastest profiled point: latency never rises with SM%, so it is at a batch's largest share."""
    quickest: float = min(min(curve.values()) for curve in profile["latencyMs"].values())
    return quickest


def _no_profile(service: WrittenSpec, admitted: list[str]) -> SloCondition:
    types: list[str] | None = service.get("gpuTypes")
    where = f"on {_join_names(types)}" if types else "on any GPU type"
    message = f"no Profile measures how fast {_join_names(admitted)} of Model {service['model']} runs {where}"
    return SloCondition(
        "False", SloReason.NO_PROFILE, f"{message}; apply a Profile or admit other variants or GPU types"
    )


def _tokens_condition(service: WrittenSpec, admitted: list[str], profiles: Iterable[WrittenSpec]) -> SloCondition:
    """Returns the verdict on a promise of tokens: the iterations of one short request alone are the least times."""
    types: list[str] | None = service.get("gpuTypes")
    slo = service["slo"]
    fastest: tuple[float, str, str, str] | None = None
    for profile in profiles:
        if profile["variant"] in admitted and (types is None or profile["gpuType"] in types):
            for degree, cost in profile.get("iteration", {}).items():
                least = cost["baseMs"] + max(cost.get("weightsMs", 0.0), cost["tokenMs"])
                found = (least, profile["variant"], profile["gpuType"], degree)
                fastest = found if fastest is None else min(fastest, found)
    if fastest is None:
        return _no_profile(service, admitted)
    least, variant, gpu_type, degree = fastest
    numbers = f"the fastest iteration is {least:.4g} ms ({variant} on {degree} x {gpu_type})"
    for field, noun in (("ttftMs", "no first token"), ("tpotMs", "no further token")):
        if least > slo[field]:
            message = f"{noun} can come within {slo[field]:g} ms, even alone: {numbers}; under load it takes longer"
            return SloCondition("False", SloReason.SLO_BELOW_FASTEST_EXEC, message)
    promise = f"the SLO is {slo['ttftMs']:g} ms to the first token and {slo['tpotMs']:g} ms a token"
    return SloCondition("True", SloReason.ATTAINABLE, f"{numbers}; {promise}")


def _no_variant(service: WrittenSpec, model: WrittenSpec) -> str:
    best = max(model["variants"], key=lambda variant: variant["accuracy"])
    wanted, least = service.get("variants"), service.get("minAccuracy")
    requirements = []
    if wanted:
        requirements.append(f"variants {_join_names(wanted)}")
    if least is not None:
        requirements.append(f"minAccuracy {least:g}")
    if service.get("meanAccuracy") is not None:
        requirements.append(f"meanAccuracy {service['meanAccuracy']:g}")
    message = f"no variant of Model {service['model']} satisfies {' and '.join(requirements)}"
    return f"{message}; its most accurate is {best['name']} with {best['accuracy']:g}"


def _join_names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:5])} and {len(names) - 5} more"
