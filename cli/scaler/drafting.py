"""Decides how many replicas each adopted workload should have, as rows of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.store.plans.scale_rows import ScaleDraft, ScaleTarget
from cli.scaler.loads import LoadsNow
from clusters.deciding import StandingReplicas, decide_replicas
from clusters.savings.floors import ReplicaBounds
from clusters.scaling.adoption import AdoptedWorkload

MOST_AGE_SECONDS = 120.0  # of a look by which something is written


@dataclass(frozen=True, slots=True)
class EngineLook:
    """What was decided at one moment, and of which workloads as they were then."""

    drafts: tuple[ScaleDraft, ...]
    adopted: Mapping[ScaleTarget, AdoptedWorkload]
    began_at: float  # seconds of a clock that only goes forward

    def is_recent(self, now: float) -> bool:
        """Returns whether the engine may still be as it was: what is written by an old look may be wrong by now."""
        return now < self.began_at + MOST_AGE_SECONDS


def decide_draft(
    adopted: AdoptedWorkload, bounds: ReplicaBounds | str, standing: StandingReplicas, loads: LoadsNow
) -> ScaleDraft:
    """Returns how many replicas a workload should have, as a row of a plan."""
    known, wanted = loads.known.get(adopted.name, "no load was measured"), None
    decision = decide_replicas(loads.explain_unread(adopted.name) or known, bounds, standing)
    why = decision.reason
    if decision.expected_per_second is not None:  # else nothing is known that could change the number
        wanted = adopted.bound(decision.replicas).replicas
    if wanted not in (None, decision.replicas):
        why += f"; {wanted} by its own bounds and one step at a time"
    return _make_draft(adopted, wanted, why, loads)


def keep_draft(adopted: AdoptedWorkload, why: str, loads: LoadsNow) -> ScaleDraft:
    """Returns a row that wants no number, as nothing is known that could change it."""
    return _make_draft(adopted, None, why, loads)


def _make_draft(adopted: AdoptedWorkload, wanted: int | None, why: str, loads: LoadsNow) -> ScaleDraft:
    blind = loads.explain_unread(adopted.name)
    return ScaleDraft(
        ScaleTarget(*adopted.name),
        adopted.service,
        adopted.mode,
        adopted.replicas,
        wanted,
        why,
        adopted.hold or blind,
        adopted.generation,
        adopted.uid,
        is_blind=bool(blind),
    )
