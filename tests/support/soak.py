"""How long the proofs run: their whole form under GPUWRIGHT_SOAK=1, about a tenth of it every day."""

from __future__ import annotations

import os

SOAK = os.environ.get("GPUWRIGHT_SOAK") == "1"


def scaled(soak: int, everyday: int) -> int:
    """A count of rounds, requests or objects."""
    return soak if SOAK else everyday
