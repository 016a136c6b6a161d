"""Orion (EuroSys, 2024), as OLTunes compares itself with it: best effort beside one high-priority client a GPU.

Orion schedules kernels. Here shares of SMs stand for that: a latency-critical service has those up to its knee, and a
throughput-oriented one runs beside it only if it needs compute where the other needs memory, or the other way round.
Orion chooses no GPU, so any with room is taken, as in OLTunes' comparison (4.1.2). Ours: the two classes of work are
services of priority 100 and more, and below; a service's shape is the smallest that carries its load, or
the one that carries most.
"""

from __future__ import annotations

from lab.baselines.orion.plan import plan

__all__ = ["plan"]
