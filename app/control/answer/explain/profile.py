"""Explains a profile: what was declared at each point, what measurements have made of it, and from how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from app.control.answer.explain.wording import count, ms
from app.control.domain.corrected import factor_at
from app.control.domain.snapshot import Correction, LatencyFactor
from app.manifests.drafts import describe_draft
from app.manifests.model import Fields
from app.manifests.uncertain import MEAN_QUANTILE, is_uncertain
from app.manifests.uncertain import value_at as value_of
from app.store.plans.corrections import CorrectionRow
from solvers.planning.judge.readings import value_at

NAMED_POINTS = 6


class ProvenanceWire(TypedDict):
    """Where a point comes from, and from how many measurements."""

    source: str
    n: int
    at: str | None


class ProfilePointWire(ProvenanceWire):
    """A point of a profile."""

    batch: int
    smPercent: float
    declaredMs: float
    factor: float
    plannedMs: float


class ProfileFactorsWire(TypedDict):
    """What measurements made of declared figures."""

    sensitivityFactor: float
    memoryFactor: float
    powerFactor: float


class ProfileExplanationWire(ProfileFactorsWire):
    """What was declared at each point of a profile, and what measurements made of it."""

    profile: str
    model: str
    variant: str
    gpuType: str
    sentences: list[str]
    regions: list[ProfilePointWire]
    lateShare: float
    steppedAt: str | None


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """The fields of a stored filter that are shown."""

    batch: int
    sm_percent: int
    n: int = 0
    at: str | None = None


class EvidenceRecord(msgspec.Struct, rename="camel"):
    """The fields of the stored evidence that are shown."""

    since: str | None = None
    stepped_at: str | None = None
    regions: tuple[RegionRecord, ...] = ()
    late: float = 0.0
    message: str = ""
    alarm: str = ""


def explain_profile(
    name: str, spec: Fields, row: CorrectionRow | None, declared_at: str, quantile: float
) -> ProfileExplanationWire:
    """Returns the profile's points, each with its declared time, its factor, and where both come from.

    Plans count on this quantile of an uncertain time; of a declared one its mean is shown.
    """
    evidence = msgspec.convert(row.evidence, EvidenceRecord) if row else EvidenceRecord()
    correction = Correction(msgspec.convert(row.latency, tuple[LatencyFactor, ...])) if row else Correction()
    points = [
        point
        for batch, curve in sorted((int(batch), curve) for batch, curve in spec.get("latencyMs", {}).items())
        for point in _points(batch, curve, correction, evidence, declared_at, quantile)
    ]
    factors: ProfileFactorsWire = {
        "sensitivityFactor": row.sensitivity_factor if row else 1.0,
        "memoryFactor": row.memory_factor if row else 1.0,
        "powerFactor": row.power_factor if row else 1.0,
    }
    return {
        "profile": name,
        "model": spec["model"],
        "variant": spec["variant"],
        "gpuType": spec["gpuType"],
        "sentences": [*_draft_sentences(spec), *_sentences(name, points, factors, evidence)],
        "regions": points,
        **factors,
        "lateShare": evidence.late,
        "steppedAt": evidence.stepped_at,
    }


def _points(
    batch: int,
    curve: Fields,
    correction: Correction,
    evidence: EvidenceRecord,
    declared_at: str,
    quantile: float,
) -> Iterator[ProfilePointWire]:
    """Yields the declared points, and those between them that were learned."""
    values = {int(sm): value for sm, value in curve.items()}
    declared, counted = (
        tuple((sm, value_of(values[sm], share)) for sm in sorted(values)) for share in (MEAN_QUANTILE, quantile)
    )
    regions = [region for region in evidence.regions if region.batch == batch]
    known = {region.sm_percent for region in regions}
    known |= {point.sm_percent for point in correction.latency if point.batch == batch}
    inside = {sm for sm in known if declared[0][0] < sm < declared[-1][0]}
    for sm_percent in sorted(inside | values.keys()):
        here = [region for region in regions if region.sm_percent == sm_percent]
        factor = factor_at(correction, batch, sm_percent)
        yield {
            "batch": batch,
            "smPercent": sm_percent,
            "declaredMs": value_at(declared, sm_percent),
            "factor": round(factor, 4),
            "plannedMs": value_at(counted, sm_percent) * factor,
            **_provenance(here, factor, values.get(sm_percent), declared_at),
        }


def _provenance(here: Sequence[RegionRecord], factor: float, declared: object, declared_at: str) -> ProvenanceWire:
    """Says where a point comes from: learned there, inferred from other points, measured or predicted, declared."""
    n = sum(region.n for region in here)
    at = max((region.at for region in here if region.at), default=None)
    if n:
        return {"source": "learned", "n": n, "at": at}
    if factor != 1:
        return {"source": "inferred", "n": 0, "at": None}
    if isinstance(declared, Mapping) and declared.get("n"):
        source = "predicted" if declared.get("source") == "learned" else "measured"
        return {"source": source, "n": declared["n"], "at": declared.get("at")}
    return {"source": "declared", "n": 0, "at": declared_at}


def _draft_sentences(spec: Fields) -> Iterator[str]:
    words = describe_draft(spec)
    if not words:
        return
    rows = [*spec.get("latencyMs", {}).values(), *spec.get("iteration", {}).values()]
    if any(is_uncertain(value) for row in rows for value in row.values()):
        until = "copies have shown them" if "latencyMs" in spec else "it is measured again"
        yield f"{words}: times are planned with its spread until {until}"
    else:
        yield f"{words}: its times state no spread, so plans take them as they are"


def _sentences(
    name: str, points: Sequence[ProfilePointWire], factors: ProfileFactorsWire, evidence: EvidenceRecord
) -> Iterator[str]:
    if not points:
        yield f"profile {name}: times of iterations, as declared; of a language model no times are learned"
        return
    learned = [point for point in points if point["source"] == "learned"]
    moved = sorted((point for point in points if point["factor"] != 1), key=lambda point: -abs(point["factor"] - 1))
    minutes = sum(point["n"] for point in learned)
    yield (
        f"profile {name}: {count(len(points), 'point')}, "
        + (f"{len(learned)} of them measured in {count(minutes, 'minute')} of instances" if learned else "as declared")
    )
    predicted = [point for point in points if point["source"] == "predicted"]
    if predicted:
        pairs = max(point["n"] for point in predicted)
        learned_from = f"{count(pairs, 'Profile')} of other pairs"
        yield f"{count(len(predicted), 'point')} predicted from {learned_from}, never measured"
    for point in moved[:NAMED_POINTS]:
        yield (
            f"batch {point['batch']} at {point['smPercent']} % of the SMs: {ms(point['declaredMs'])} declared, planned "
            f"with {ms(point['plannedMs'])}, {point['plannedMs'] / point['declaredMs']:.2f} times as long "
            f"({point['source']})"
        )
    if len(moved) > NAMED_POINTS:
        yield f"and {count(len(moved) - NAMED_POINTS, 'more point')} that differ from the declared"
    if factors["sensitivityFactor"] != 1:
        yield f"neighbours slow it down {factors['sensitivityFactor']:.2f} times as much as declared"
    for what, factor in (("memory", factors["memoryFactor"]), ("power", factors["powerFactor"])):
        if factor != 1:
            yield f"{what} is {factor:.2f} times the declared"
    if evidence.late:
        yield f"{100 * evidence.late:.0f} % were added, because answers were late although execution was as declared"
    if evidence.alarm:
        yield evidence.alarm
