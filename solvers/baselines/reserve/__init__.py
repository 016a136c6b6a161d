"""Reserve-and-pack (Alibaba's MLaaS, NSDI 2022): high-end GPUs for large services, all others packed elsewhere.

High-end are the GPUs of the highest price, where there are several types. Ours: a service is large if it takes half a
high-end GPU's SMs at the shape that carries most; its shape is the smallest that carries
its load, or the one that carries most; packing is best fit by SMs, without regard to what runs there.
"""

from __future__ import annotations

from solvers.baselines.reserve.plan import plan

__all__ = ["plan"]
