"""How long the proofs run: their whole form under GPUWRIGHT_SOAK=1, about a tenth of it every day, a fiftieth of it in
`make test`, which sets GPUWRIGHT_FAST=1 and leaves out what is marked slow.
"""

from __future__ import annotations

import os

SOAK = os.environ.get("GPUWRIGHT_SOAK") == "1"
FAST = os.environ.get("GPUWRIGHT_FAST") == "1" and not SOAK


def scaled(soak: int, everyday: int, fast: int | None = None) -> int:
    """A count of rounds, requests or objects. `fast` is a fifth of `everyday`, unless it is given."""
    if SOAK:
        return soak
    if not FAST:
        return everyday
    if fast is not None:
        return fast
    return everyday if everyday >= soak else max(1, everyday // 5)  # a step or an error is larger every day
