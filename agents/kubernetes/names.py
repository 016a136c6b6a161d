"""The names by which gpuwright's objects are known in a cluster, and what the kubelet says of its pods."""

from __future__ import annotations

import hashlib

from agents.kubernetes.api import Object

DOMAIN = "gpuwright.io"
PART, NODE, HASH = f"{DOMAIN}/part", f"{DOMAIN}/node", f"{DOMAIN}/copy-hash"  # labels
COPY = f"{DOMAIN}/copy"  # an annotation: a copy's name has characters that no label may have
UUID = f"{DOMAIN}/gpu"  # an annotation of claims
GATE = f"{DOMAIN}/limits-verified"  # a condition of pods
TAINT = f"{DOMAIN}/gpus"  # keeps others' pods off nodes whose GPUs belong to MPS
CONTAINER = "copy"  # also of holders
GPU = "nvidia.com/gpu"  # what a device plugin gives out
DRIVER = "gpu.nvidia.com"  # gives GPUs out by DRA; its device class and its attributes have the same name


def hash_copy(copy: str) -> str:
    """Returns what stands for a copy's name where its characters are not allowed."""
    return hashlib.sha256(copy.encode()).hexdigest()[:32]


def name_claim(node: str, gpu: str) -> str:
    """Returns the name of the claim that the pods of a GPU share: no other node's agent may make it."""
    return f"{node}.gpu-{hash_copy(gpu)[:16]}"


def name_holder(node: str, gpu: str) -> str:
    """Returns the name of the ReplicaSet that holds a GPU, which is a number where a device plugin chooses it."""
    which = gpu if gpu.isdecimal() else hash_copy(gpu)[:16]
    return f"holder-{hash_copy(node)[:16]}-{which}"


def status_of(pod: Object) -> Object:
    """Returns what the kubelet says of the pod's container."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status.get("name") == CONTAINER), {})


def container_of(pod: Object) -> str:
    """Returns the ID of the container that runs, without the name of its runtime; empty where none does."""
    status = status_of(pod)
    return str(status.get("containerID", "")).rpartition("/")[2] if "running" in (status.get("state") or {}) else ""
