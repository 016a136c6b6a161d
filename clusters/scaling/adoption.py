"""Finds the workloads that annotations adopt, with who decides on them and what holds them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from app.manifests.words import Mode
from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import Estate, WorkloadName
from clusters.objects import ClusterObjects, KubeObject, name_of, namespace_of, read_mapping, read_text, read_whole
from clusters.promises import WorkloadPromise
from clusters.reading.workloads import SCALED
from clusters.scaling.annotations import Adoption, read_adoption
from clusters.scaling.ownership import find_owner, find_recent_change
from clusters.scaling.sightings import Sighting, read_generation, read_uid
from clusters.scaling.steps import bound_replicas

MOST_NAMED = 20  # workloads of a namespace whose faults are named; who may annotate may make thousands of them


@dataclass(frozen=True, slots=True)
class AdoptedWorkload:
    """A workload whose replicas may be decided here, unless something holds it."""

    name: WorkloadName
    service: str  # a label of its gauge; several workloads may serve one
    mode: Mode
    replicas: int
    bounds: AnnotatedBounds
    uid: str
    generation: int  # of its metadata: with another specification a decision no longer counts
    promise: WorkloadPromise | None
    hold: str  # why nothing is written, whatever the mode; empty: nothing holds it
    is_understood: bool = True  # else its annotations have faults

    @property
    def known_bounds(self) -> AnnotatedBounds | str:
        """Returns between which numbers annotations allow it, or why nobody knows."""
        unknown = "its annotations have faults, so nobody knows between which bounds it may be"
        return self.bounds if self.is_understood else unknown

    def bound(self, replicas: int) -> WantedReplicas:
        """Returns the next write on the way to so many replicas, within bounds and one step."""
        return WantedReplicas(self, bound_replicas(self.replicas, replicas, self.bounds))


@dataclass(frozen=True, slots=True)
class WantedReplicas:
    """A change that was decided: how many replicas a workload is to have that is as it was read."""

    adopted: AdoptedWorkload
    replicas: int


def find_adopted(
    objects: ClusterObjects,
    estate: Estate,
    promises: Mapping[WorkloadName, WorkloadPromise],
    seen: Mapping[str, Sighting],
) -> list[AdoptedWorkload]:
    """Returns the adopted workloads by name; `seen` is what `note_sightings` has returned for these objects."""
    known = {workload.name for workload in estate.workloads}
    found = []
    faulty = Counter[str]()  # by namespace
    for kind in SCALED:
        for item in objects.of(kind):
            name = WorkloadName(namespace_of(item), kind, name_of(item))
            annotations, names_faults = (
                read_mapping(item, "metadata", "annotations"),
                faulty[name.namespace] < MOST_NAMED,
            )
            adoption = read_adoption(annotations, names_faults=names_faults)
            if adoption:
                faulty[name.namespace] += bool(adoption.faults)
                hold = find_hold(item, kind, adoption, objects, seen.get(read_uid(item)))
                if not hold and name not in known:
                    hold = "none of its pods asks for GPUs, so nothing is known of what they serve"
                found.append(
                    AdoptedWorkload(
                        name, adoption.service, adoption.mode, read_replicas(item), adoption.bounds, read_uid(item),
                        read_generation(item), promises.get(name), hold, is_understood=not adoption.faults,
                    )
                )  # fmt: skip
    return sorted(found, key=lambda workload: workload.name)


def find_known_bounds(objects: ClusterObjects, estate: Estate) -> dict[WorkloadName, AnnotatedBounds | str]:
    """Returns for each adopted workload between which numbers annotations allow it, or why nobody knows."""
    return {each.name: each.known_bounds for each in find_adopted(objects, estate, {}, {})}


def find_hold(
    item: KubeObject, kind: str, adoption: Adoption, objects: ClusterObjects, sighting: Sighting | None
) -> str:
    """Returns the sentence on what keeps a workload from being written; empty if nothing does."""
    if adoption.faults:
        return "; ".join(adoption.faults)
    owner = find_owner(item, kind, objects)
    if owner or objects.server_time is None:
        return owner or "the API server has not said what time it is"
    if read_replicas(item) == 0:
        return "it is scaled to none, perhaps for a reason; scale it to one by hand"
    if read_text(item, "spec", "persistentVolumeClaimRetentionPolicy", "whenScaled") == "Delete":
        return "its volumes are deleted when replicas go; set persistentVolumeClaimRetentionPolicy.whenScaled to Retain"
    return find_recent_change(item, objects.server_time, sighting)


def read_replicas(item: KubeObject) -> int:
    """Returns the declared replicas, which are one where nothing is declared."""
    found = read_whole(item, "spec", "replicas")
    return 1 if found is None else found
