"""The seat lent to a measurement: a GPU on which nothing else runs, and the means to start a copy there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.keeper.drivers import NodeDrivers
from agents.keeper.filler import Filler
from agents.seams.device import GpuDevice


class Interrupted(Exception):
    """The measurement was broken off; the message says why."""


@dataclass(frozen=True, slots=True)
class ProfilingSeat:
    """The node's drivers and templates, and what it knows of its GPUs."""

    drivers: NodeDrivers
    filler: Filler
    host: str  # where copies listen
    find_gpu: Callable[[int], GpuDevice | None]  # by its index on this node
    occupants: Callable[[int], str]  # what runs on a GPU, or is assigned to it; empty: nothing


def check_of(seat: ProfilingSeat, gpu: int, why_stop: Callable[[], str]) -> Callable[[], None]:
    """Returns a function that raises Interrupted once the GPU is needed elsewhere, or `why_stop` gives a reason."""

    def check() -> None:
        if why := (seat.occupants(gpu) or why_stop()):
            raise Interrupted(why)

    return check
