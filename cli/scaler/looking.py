"""Reads the cluster and its load as they are now, and decides how many replicas each adopted workload should have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from app.store.plans.scale_rows import ScaleDraft, ScaleTarget
from cli.scaler.drafting import EngineLook, decide_draft, keep_draft
from cli.scaler.loads import LoadReader, LoadsNow, MeasureLoads
from cli.scaler.reaching import LookFailed
from clusters.decided_bounds import draw_annotated_bounds, leave_to_decisions
from clusters.deciding import StandingReplicas
from clusters.estate import ClusterWorkload, Estate, WorkloadName
from clusters.objects import ClusterObjects, name_of, namespace_of
from clusters.promises import find_promises
from clusters.reading import read_estate
from clusters.reading.workloads import SCALED
from clusters.scaling.adoption import AdoptedWorkload, find_adopted
from clusters.scaling.sightings import Sighting, note_sightings, read_uid

NEEDED = (*SCALED, "Pod", "Node")


@dataclass(slots=True)
class ClusterWatch:
    """What a scaler remembers between two looks: since when workloads are as they are, and the load of days."""

    read_objects: Callable[[], ClusterObjects]
    measure: MeasureLoads
    clock: Callable[[], float]
    days: float
    namespaces: Collection[str] = ()  # whose workloads may be adopted; none: all
    _seen: Mapping[str, Sighting] = field(default_factory=dict)
    _loads: LoadReader = field(init=False)

    def __post_init__(self) -> None:
        self._loads = LoadReader(self.measure, self.clock, self.days)

    def look(self) -> EngineLook:
        """Decides by what the cluster and its metrics say now; LookFailed where one of them does not answer."""
        began_at = self.clock()
        objects = self.read_objects()
        unread = [kind for kind in NEEDED if kind not in objects.lists]
        if unread:
            raise LookFailed("cluster", "; ".join(map(str, objects.unread)))
        estate = read_estate(objects)
        self._seen = note_sightings(objects, self._seen)
        found = [
            each
            for each in find_adopted(objects, estate, find_promises(estate), self._seen)
            if not self.namespaces or each.name.namespace in self.namespaces
        ]
        loads = self._loads.read(estate, found, objects.server_time, began_at)
        ages = self._find_ages(objects)
        workloads = {each.name: each for each in estate.workloads}
        drafts = tuple(_draft(each, workloads.get(each.name), estate, loads, ages) for each in found)
        return EngineLook(drafts, {ScaleTarget(*each.name): each for each in found}, began_at)

    def _find_ages(self, objects: ClusterObjects) -> dict[WorkloadName, float]:
        """Returns for how many seconds each workload is known to be as it is."""
        now = objects.server_time
        return {
            WorkloadName(namespace, kind, name): (now - self._seen[uid].since).total_seconds()
            for kind in SCALED
            for item in objects.of(kind)
            if now and (uid := read_uid(item)) in self._seen
            for namespace, name in [(namespace_of(item), name_of(item))]
        }


def _draft(
    adopted: AdoptedWorkload, workload: ClusterWorkload | None, estate: Estate,
    loads: LoadsNow, ages: Mapping[WorkloadName, float],
) -> ScaleDraft:  # fmt: skip
    """Returns how many replicas a workload should have, as a row of a plan."""
    if isinstance(annotated := adopted.known_bounds, str):
        return keep_draft(adopted, annotated, loads)
    if workload is None:
        return keep_draft(adopted, "nothing is known of what it serves", loads)
    bounds = draw_annotated_bounds(leave_to_decisions(workload), estate, annotated)
    standing = StandingReplicas(adopted.replicas, workload.ready, ages.get(adopted.name, 0.0))
    return decide_draft(adopted, bounds, standing, loads)
