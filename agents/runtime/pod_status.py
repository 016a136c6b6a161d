"""Reads from pods of copies what the API server, the scheduler and the kubelet say of them."""

from __future__ import annotations

from collections.abc import Mapping

from agents.kubernetes.api import Object
from agents.kubernetes.names import COPY, status_of
from agents.runtime.logs import strip_controls

_OVER = ("Failed", "Succeeded")  # the phases of pods that run no more


def copy_of(found: Object) -> str:
    """Returns the name of the copy that a pod or a ReplicaSet is of."""
    return str((found["metadata"].get("annotations") or {}).get(COPY, ""))


def read_port(pod: Object) -> int:
    """Returns where the program listens; 0 for one that does not serve."""
    (container,) = pod["spec"]["containers"]
    return next((int(port["containerPort"]) for port in container.get("ports") or ()), 0)


def is_leaving(pod: Object) -> bool:
    """Returns whether it was deleted, and ends now."""
    return "deletionTimestamp" in pod["metadata"]


def grace_of(pod: Object) -> float:
    """Returns after how many seconds the kubelet kills what was deleted."""
    given = pod["metadata"].get("deletionGracePeriodSeconds")
    return float(pod["spec"].get("terminationGracePeriodSeconds", 0.0) if given is None else given)


def is_over(pod: Object) -> bool:
    """Returns whether it runs no more, such as one that was evicted."""
    return (pod.get("status") or {}).get("phase", "") in _OVER


def read_exit(pods: Mapping[str, Object], container: str) -> int | None:
    """Returns the code that the kubelet has said of a container; None before it has."""
    for pod in pods.values():
        status = status_of(pod)
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            ended = state.get("terminated") or {}
            if str(ended.get("containerID", "")).endswith(container) and "exitCode" in ended:
                return int(ended["exitCode"]) & 0xFF
    return None


def why_not_running(pod: Object) -> str:
    """Returns what keeps a pod from running, in the words of the scheduler and the kubelet."""
    states = (status_of(pod).get(name) or {} for name in ("state", "lastState"))
    containers = [said for state in states for kind in ("waiting", "terminated") if (said := state.get(kind))]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    unscheduled = [
        found for found in conditions if found.get("type") == "PodScheduled" and found.get("status") != "True"
    ]
    said = [pod.get("status") or {}, *containers, *unscheduled]  # of the pod itself: who has evicted it
    words = [f"{found.get('reason', '')}: {found.get('message', '')}".strip(": ") for found in said]
    return strip_controls("; ".join(filter(None, words)).encode())
