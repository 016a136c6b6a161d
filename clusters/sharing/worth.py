"""What a campaign that profiles a model is worth: the part of the interval that rests on its workloads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from clusters.estate import Estate, WorkloadName
from clusters.sharing import SharedKind, SharingEstimate
from clusters.sharing.filling import keep_nodes
from clusters.sharing.rooms import open_kind

MOST_MODELS = 30  # that hold most GPUs: each takes two estimates


@dataclass(frozen=True, slots=True)
class CampaignWorth:
    """What a profile of one model may make certain, an hour: at most what its workloads add to the savings.

    Who shares a GPU needs somebody to share it with. So a model adds something beside those that have profiles
    already, and something else beside all the others.
    """

    model: str  # or the name of the workload, where nobody has named its model
    workloads: tuple[WorkloadName, ...]
    alone_nano_per_hour: int
    nano_per_hour: int  # with the others' profiles, too


def find_worths(estate: Estate, found: SharingEstimate, models: Mapping[WorkloadName, str]) -> list[CampaignWorth]:
    """Returns the models by what a campaign for each is worth; `models` are those without profiles."""
    groups: dict[str, set[WorkloadName]] = defaultdict(set)
    held: dict[str, float] = defaultdict(float)
    for kind in found.kinds:
        for sharer in kind.kind.sharers:
            if model := models.get(sharer.workload):
                groups[model].add(sharer.workload)
                held[model] += sharer.gpus_per_replica * sharer.replicas
    worths = []
    for model in sorted(groups, key=lambda model: (-held[model], model))[:MOST_MODELS]:
        gains = list(_gains(estate, found.kinds, groups[model], models.keys()))
        alone, together = sum(first for first, _ in gains), sum(last for _, last in gains)
        if alone or together:
            worths.append(CampaignWorth(model, tuple(sorted(groups[model])), alone, max(alone, together)))
    return sorted(worths, key=lambda each: (-each.alone_nano_per_hour - each.nano_per_hour, each.model))


def _gains(
    estate: Estate, kinds: Iterable[SharedKind], names: set[WorkloadName], unprofiled: Set[WorkloadName]
) -> Iterator[tuple[int, int]]:
    """Gives what these workloads add in each kind of nodes, beside profiled ones and beside all."""
    for kind in kinds:
        everyone = {sharer.workload for sharer in kind.kind.sharers}
        if own := everyone & names:
            profiled = everyone - unprofiled
            first = _save_at_most(estate, kind, profiled | own) - _save_at_most(estate, kind, profiled)
            last = kind.high_nano_per_hour - _save_at_most(estate, kind, everyone - own)
            yield max(0, first), max(0, last)


def _save_at_most(estate: Estate, kind: SharedKind, names: set[WorkloadName]) -> int:
    """Returns the high end of a kind of nodes where these workloads share and others stay as they are."""
    pairs = [
        (sharer, demand)
        for sharer, demand in zip(kind.kind.sharers, kind.demands, strict=True)
        if sharer.workload in names
    ]
    opened = open_kind(estate, kind.kind.alike, [sharer for sharer, _ in pairs])
    return opened.nano_per_hour - int(keep_nodes(opened, [demand for _, demand in pairs]).low)
