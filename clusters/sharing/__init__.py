"""What could be saved where GPUs are shared, at level L1: an interval from memory and activity, never certified.

Pure: from an estate, its bill and what was measured, the same interval. A workload stays as it is where its load was
not measured or a rule keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clusters.bill import Bill
from clusters.estate import Estate, WorkloadName
from clusters.gpu_use import MeasuredGpu
from clusters.measured import MeasuredLoads
from clusters.savings.needs import LoadNeed
from clusters.sharing.demand import ShareDemand, find_demands
from clusters.sharing.filling import keep_nodes
from clusters.sharing.rooms import OpenKind, open_rooms


@dataclass(frozen=True, slots=True)
class SharedKind:
    """A kind of nodes whose workloads could share GPUs, and what that saves an hour: at least, and at most."""

    kind: OpenKind
    demands: tuple[ShareDemand, ...]  # in the order of its sharers
    low_nano_per_hour: int
    high_nano_per_hour: int


@dataclass(frozen=True, slots=True)
class SharingEstimate:
    """Level L1: the interval of each kind of nodes, and why other workloads stay as they are."""

    kinds: tuple[SharedKind, ...]
    staying: Mapping[WorkloadName, str]

    @property
    def low_nano_per_hour(self) -> int:
        return sum(each.low_nano_per_hour for each in self.kinds)

    @property
    def high_nano_per_hour(self) -> int:
        return sum(each.high_nano_per_hour for each in self.kinds)


def estimate_sharing(
    estate: Estate, bill: Bill, measured: MeasuredLoads, needs: Mapping[WorkloadName, LoadNeed | str],
    gpus: Sequence[MeasuredGpu],
) -> SharingEstimate:  # fmt: skip
    """Returns what sharing could save; `needs` are those that level L0 found."""
    rooms = open_rooms(estate, bill, measured, needs, {})
    return SharingEstimate(tuple(_estimate(kind, measured, gpus) for kind in rooms.kinds), rooms.staying)


def _estimate(kind: OpenKind, measured: MeasuredLoads, gpus: Sequence[MeasuredGpu]) -> SharedKind:
    demands = tuple(find_demands(kind.sharers, measured.workloads, gpus))
    if not kind.memory_gib:
        demands = tuple(
            replace(each, missing=each.missing or "the memory of its GPUs is not known") for each in demands
        )
    kept = keep_nodes(kind, demands)
    return SharedKind(kind, demands, kind.nano_per_hour - int(kept.high), kind.nano_per_hour - int(kept.low))
