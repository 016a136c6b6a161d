"""Between which numbers a workload is decided: by its rules in the cluster, and by the annotations that adopt it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clusters.estate import OURS, ClusterWorkload, Estate
from clusters.savings.floors import ReplicaBounds, draw_bounds

MOST = OURS + "max-replicas"


@dataclass(frozen=True, slots=True)
class AnnotatedBounds:
    """Between how many replicas a workload is scaled. None has no upper bound, which mode auto refuses."""

    least: int = 1
    most: int | None = None

    def apply(self, replicas: int) -> int:
        return max(self.least, replicas if self.most is None else min(replicas, self.most))


def leave_to_decisions(workload: ClusterWorkload) -> ClusterWorkload:
    """Returns an adopted workload without an autoscaler that is paused: it sets no replicas.

    Whether it keeps them is a hold, which does not change what is wanted.
    """
    is_paused = workload.autoscaler and workload.autoscaler.is_paused
    return replace(workload, autoscaler=None) if is_paused else workload


def draw_annotated_bounds(workload: ClusterWorkload, estate: Estate, annotated: AnnotatedBounds) -> ReplicaBounds | str:
    """Returns the bounds of a workload with those of its annotations, or why its number stays as it is."""
    bounds = draw_bounds(workload, estate.pods_of(workload.name), estate)
    if isinstance(bounds, str) or bounds.most is not None or annotated.most is None:
        return bounds
    return replace(bounds, most=max(bounds.least, annotated.most), most_reason=MOST)
