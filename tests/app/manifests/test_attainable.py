"""An SLO that no profiled hardware can meet says so, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from app.manifests.attainable import SloReason, slo_condition

MODEL = {"variants": [{"name": "fp16", "accuracy": 0.76}, {"name": "int8", "accuracy": 0.7}]}


def profile(variant: str, gpu_type: str, fastest: float) -> dict[str, Any]:
    curve = {"10": fastest * 5, "100": fastest}
    return {"variant": variant, "gpuType": gpu_type, "latencyMs": {"1": curve, "8": {"100": fastest * 3}}}


PROFILES = [profile("fp16", "v100", 8.0), profile("int8", "t4", 4.0), profile("fp16", "t4", 20.0)]


def service(latency_ms: float, **spec: Any) -> dict[str, Any]:
    return {"model": "resnet50", "slo": {"latencyMs": latency_ms, "percentile": 98}, **spec}


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        (service(4.2), SloReason.ATTAINABLE, "4 ms (int8 on t4), 4.2 ms with the margin of 5 %"),
        (service(4.19), SloReason.SLO_BELOW_FASTEST_EXEC, "no request can finish within 4.19 ms, even alone"),
        (service(8.4, minAccuracy=0.75), SloReason.ATTAINABLE, "8 ms (fp16 on v100)"),
        (service(8.0, variants=["fp16"]), SloReason.SLO_BELOW_FASTEST_EXEC, "8.4 ms"),
        (service(9, variants=["fp16"], gpuTypes=["t4"]), SloReason.SLO_BELOW_FASTEST_EXEC, "21 ms"),
        (service(8.4, meanAccuracy=0.75), SloReason.ATTAINABLE, "8 ms (fp16 on v100)"),
        (service(9, meanAccuracy=0.8), SloReason.NO_VARIANT, "meanAccuracy 0.8; its most accurate is fp16 with 0.76"),
        (service(9, minAccuracy=0.8), SloReason.NO_VARIANT, "minAccuracy 0.8; its most accurate is fp16 with 0.76"),
        (service(9, variants=["int8"], minAccuracy=0.75), SloReason.NO_VARIANT, "variants int8 and minAccuracy 0.75"),
        (service(9, gpuTypes=["a100"]), SloReason.NO_PROFILE, "on a100"),
    ],
)
def test_the_verdict_and_its_numbers(spec: dict[str, Any], reason: SloReason, says: str) -> None:
    found = slo_condition(spec, MODEL, PROFILES)
    assert found.reason is reason
    assert found.status == ("True" if reason is SloReason.ATTAINABLE else "False")
    assert says in found.message


def test_the_policys_margin_is_the_one_that_counts() -> None:
    assert slo_condition(service(4), MODEL, PROFILES, {"execMargin": 0}).status == "True"
    assert slo_condition(service(4), MODEL, PROFILES, {}).status == "False"


def test_the_policys_quantile_of_an_uncertain_profile_is_the_one_that_counts() -> None:
    uncertain = [{**PROFILES[0], "latencyMs": {"1": {"100": {"mean": 3.0, "q90": 5.0}}}}]
    assert slo_condition(service(4), MODEL, uncertain).status == "False"
    assert slo_condition(service(4), MODEL, uncertain, {"profileQuantile": 0.5}).status == "True"


def test_a_model_without_profiles_has_none() -> None:
    assert slo_condition(service(4), MODEL, []).reason is SloReason.NO_PROFILE
