"""A process's share of a simulated GPU: memory, multiprocessors, and how busy it keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from agents.devices.simulated.speeds import PlayedLoad


@dataclass(slots=True, eq=False)
class SimulatedContext:
    """One context; `error` is what its process learned about its end: 810, or 0 if nothing."""

    pid: int
    sm_count: int
    memory_gib: float
    memory_limit_gib: float | None = None
    under_mps: bool = True
    busy: float = 0.0
    error: int | None = None
    load: PlayedLoad | None = None  # what it plays; None: its own program
