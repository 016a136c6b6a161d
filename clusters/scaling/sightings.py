"""How long a workload has been as it is: the API server keeps no time of what is written through `scale`.

`kubectl scale` and the HPA's controller write through `scale`, and managedFields then name them without a time. Every
change of a specification raises `metadata.generation`, though. So a scaler that saw the same generation ten minutes
ago knows that nobody changed replicas since; and one that did not waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from clusters.objects import ClusterObjects, KubeObject, read_text, read_whole
from clusters.reading.workloads import SCALED


@dataclass(frozen=True, slots=True)
class Sighting:
    """A workload's generation, and when it was seen first by the clock of the API server."""

    generation: int
    since: datetime


def note_sightings(objects: ClusterObjects, seen: Mapping[str, Sighting]) -> dict[str, Sighting]:
    """Returns by uid since when each workload is known to be as it is.

    What has changed is as it is since the last answer: a list may have been read long after the first one.
    """
    if objects.read_until is None:
        return {}
    found = {}
    for kind in SCALED:
        for item in objects.of(kind):
            uid, generation = read_uid(item), read_generation(item)
            earlier = seen.get(uid)
            is_same = earlier is not None and earlier.generation == generation
            found[uid] = earlier if earlier and is_same else Sighting(generation, objects.read_until)
    return found


def read_uid(item: KubeObject) -> str:
    return read_text(item, "metadata", "uid")


def read_generation(item: KubeObject) -> int:
    """Returns the generation, which servers count from 1."""
    return read_whole(item, "metadata", "generation") or 0
