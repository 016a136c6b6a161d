"""The names by which gpuwright's objects are known in a cluster."""

from __future__ import annotations

import hashlib

DOMAIN = "gpuwright.io"
PART, NODE, HASH = f"{DOMAIN}/part", f"{DOMAIN}/node", f"{DOMAIN}/copy-hash"  # labels
COPY = f"{DOMAIN}/copy"  # an annotation: a copy's name has characters that no label may have
GATE = f"{DOMAIN}/limits-verified"  # a condition of pods
TAINT = f"{DOMAIN}/gpus"  # keeps others' pods off nodes whose GPUs belong to MPS
CONTAINER = "copy"


def hash_copy(copy: str) -> str:
    """Returns what stands for a copy's name where its characters are not allowed."""
    return hashlib.sha256(copy.encode()).hexdigest()[:32]
