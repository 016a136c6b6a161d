"""Places requests that are all known in advance by the same rule in a better order, for fleets of thousands."""

from __future__ import annotations

from collections.abc import Sequence

from lab.baselines.online.fleet import OnlineFleet, PlacedRequest
from lab.baselines.online.waste import expected_waste
from lab.baselines.online.workload import GPU_MILLI, GpuRequest, Workload

DRAWS = 50
WASTEFUL = 0.12  # as a share of the request


def order(requests: Sequence[GpuRequest]) -> list[int]:
    """Returns the indices in order of placement: many GPUs before one, whole GPUs before parts, much CPU before little.

    A part comes after all other parts if the mix could not fill the rest of its GPU."""
    pieces = Workload.count(requests).pieces
    waste = expected_waste(pieces, DRAWS)

    def place(index: int) -> tuple[int, bool, int, int, int]:
        request = requests[index]
        rest = waste[GPU_MILLI - request.gpu_milli] if request.is_part else 0.0
        wasteful = bool(rest > WASTEFUL * request.gpu_milli)
        return (-request.gpus, wasteful, -request.gpu_milli, -request.cpu_milli, index)

    return sorted(range(len(requests)), key=place)


def place_all(fleet: OnlineFleet, requests: Sequence[GpuRequest]) -> list[PlacedRequest | None]:
    """Returns the place of each request, in the order given; None if it fits nowhere."""
    placed: list[PlacedRequest | None] = [None] * len(requests)
    for index in order(requests):
        placed[index] = fleet.place(requests[index])
    return placed
