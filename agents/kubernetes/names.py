"""The names by which gpuwright's objects are known in a cluster, and what the kubelet says of its pods."""

from __future__ import annotations

import hashlib

from agents.kubernetes.api import Object

DOMAIN = "gpuwright.io"
PART, NODE, HASH = f"{DOMAIN}/part", f"{DOMAIN}/node", f"{DOMAIN}/copy-hash"  # labels
COPY = f"{DOMAIN}/copy"  # an annotation: a copy's name has characters that no label may have
GATE = f"{DOMAIN}/limits-verified"  # a condition of pods
TAINT = f"{DOMAIN}/gpus"  # keeps others' pods off nodes whose GPUs belong to MPS
CONTAINER = "copy"  # also of holders


def hash_copy(copy: str) -> str:
    """Returns what stands for a copy's name where its characters are not allowed."""
    return hashlib.sha256(copy.encode()).hexdigest()[:32]


def status_of(pod: Object) -> Object:
    """Returns what the kubelet says of the pod's container."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status.get("name") == CONTAINER), {})


def container_of(pod: Object) -> str:
    """Returns the ID of the container that runs, without the name of its runtime; empty where none does."""
    status = status_of(pod)
    return str(status.get("containerID", "")).rpartition("/")[2] if "running" in (status.get("state") or {}) else ""
