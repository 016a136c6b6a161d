"""A profile's explanation: each point with what was declared, what was learned, from how much, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from app.control.answer.explain.profile import explain_profile
from app.control.domain.snapshot import Correction, LatencyFactor
from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.drift.rows import write_correction
from solvers.learning.region import Region

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC = {
    "model": "resnet", "variant": "fp16", "gpuType": "v100",
    "latencyMs": {"8": {"10": 96.0, "100": 24.0}, "1": {"10": 20.0, "100": 8.0}},
}  # fmt: skip
LEARNED = Correction((LatencyFactor(8, 10, 1.05), LatencyFactor(8, 55, 1.2), LatencyFactor(8, 100, 1.0)))
REGION = Region(8, 55, mean=0.18, variance=1e-4, noise=1e-4, n=42, minutes=21, at=NOON)


def test_what_was_not_measured_is_as_declared() -> None:
    found = explain_profile("resnet-v100", SPEC, None, "2025-12-01T00:00:00Z", 0.9)
    assert [(point["batch"], point["smPercent"], point["declaredMs"]) for point in found["regions"]] == [
        (1, 10, 20.0), (1, 100, 8.0), (8, 10, 96.0), (8, 100, 24.0),
    ]  # fmt: skip
    sources = {(point["source"], point["n"], point["at"], point["factor"]) for point in found["regions"]}
    assert sources == {("declared", 0, "2025-12-01T00:00:00Z", 1.0)}
    assert found["sentences"] == ["profile resnet-v100: 4 points, as declared"]


def test_a_place_that_was_learned_shows_its_factor_and_from_how_much() -> None:
    row = write_correction(ProfileCorrection("resnet/fp16/v100", LEARNED, NOON, NOON, regions=(REGION,)), NOON)
    found = explain_profile("resnet-v100", SPEC, row, "2025-12-01T00:00:00Z", 0.9)
    points = {(point["batch"], point["smPercent"]): point for point in found["regions"]}
    learned, inferred, kept = points[8, 55], points[8, 10], points[8, 100]
    assert (learned["source"], learned["n"], learned["at"]) == ("learned", 42, "2026-01-01T12:00:00Z")
    assert learned["declaredMs"] == 60.0
    assert learned["plannedMs"] == 72.0
    assert (inferred["source"], inferred["factor"]) == ("inferred", 1.05)
    assert (kept["source"], kept["factor"]) == ("declared", 1.0)
    assert found["sentences"][1].startswith("batch 8 at 55 % of the SMs: 60 ms declared, planned with 72 ms")


def test_points_that_a_profiler_measured_say_so() -> None:
    measured = {"mean": 24.0, "q90": 25.0, "n": 16, "at": "2025-11-30T00:00:00Z", "source": "measured"}
    spec = {**SPEC, "latencyMs": {"8": {"10": 96.0, "100": measured}}}
    point = explain_profile("resnet-v100", spec, None, "2025-12-01T00:00:00Z", 0.9)["regions"][-1]
    assert (point["source"], point["n"], point["at"]) == ("measured", 16, "2025-11-30T00:00:00Z")
    assert (point["declaredMs"], point["plannedMs"]) == (24.0, 25.0)  # plans count on the quantile


def test_points_that_were_predicted_do_not_count_as_measured() -> None:
    predicted = {"mean": 24.0, "q90": 31.0, "n": 7, "source": "learned"}
    spec = {**SPEC, "latencyMs": {"8": {"10": 96.0, "100": predicted}}}
    found = explain_profile("resnet-v100", spec, None, "2025-12-01T00:00:00Z", 0.9)
    assert [(point["source"], point["n"]) for point in found["regions"]] == [("declared", 0), ("predicted", 7)]
    assert found["sentences"][1:] == ["1 point predicted from 7 Profiles of other pairs, never measured"]


def test_of_a_language_model_no_times_are_learned() -> None:
    spec = {
        "model": "llama",
        "variant": "fp16",
        "gpuType": "h100",
        "iteration": {"1": {"baseMs": 5.0, "tokenMs": 0.03}},
    }
    found = explain_profile("llama-h100", spec, None, "2025-12-01T00:00:00Z", 0.9)
    assert found["regions"] == []
    assert found["sentences"] == [
        "profile llama-h100: times of iterations, as declared; of a language model no times are learned"
    ]


def test_what_is_not_latency_is_said_in_sentences() -> None:
    correction = Correction(sensitivity_factor=1.5, memory_factor=1.1)
    known = ProfileCorrection("resnet/fp16/v100", correction, NOON, NOON, late=0.05, alarm="measure it again")
    row = write_correction(replace(known, regions=(REGION,)), NOON)
    said = explain_profile("resnet-v100", SPEC, row, "2025-12-01T00:00:00Z", 0.9)["sentences"]
    assert said[1:] == [
        "neighbours slow it down 1.50 times as much as declared",
        "memory is 1.10 times the declared",
        "5 % were added, because answers were late although execution was as declared",
        "measure it again",
    ]


def test_a_draft_says_whether_and_how_long_plans_count_on_a_spread() -> None:
    def say_draft(tables: dict[str, object]) -> str:
        spec = {**{name: SPEC[name] for name in ("model", "variant", "gpuType")}, "leftOutError": 0.6, **tables}
        return explain_profile("resnet-v100", spec, None, "2025-12-01T00:00:00Z", 0.9)["sentences"][0]

    wide = {"mean": 24.0, "q90": 51.0, "source": "measured"}
    assert say_draft({"latencyMs": SPEC["latencyMs"]}).endswith("no spread, so plans take them as they are")
    assert say_draft({"latencyMs": {"8": {"100": wide}}}).endswith("with its spread until copies have shown them")
    assert say_draft({"iteration": {"1": {"baseMs": wide}}}).endswith("with its spread until it is measured again")
