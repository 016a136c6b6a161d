"""What a pod's status says of its containers: its phase and its conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.kubernetes.kubelet.api import Resource, find
from tests.kubernetes.kubelet.containers import Container

Condition = tuple[str, bool, str, str]  # type, whether it holds, and else the reason and the message


def find_phase(inits: Sequence[Container], containers: Sequence[Container], policy: str, ending: bool) -> str:
    last = "Never" if ending else policy
    if any(init.is_over("Never") and init.exit_code and init.is_over(policy) for init in inits):
        return "Failed"
    if all(one.is_over(last) for one in containers):
        return "Failed" if any(one.exit_code for one in containers) else "Succeeded"
    if ending and not any(one.running for one in (*inits, *containers)):
        return "Failed"
    return "Running" if all(one.run for one in containers) else "Pending"


def find_conditions(
    pod: Resource, inits: Sequence[Container], containers: Sequence[Container], phase: str
) -> Iterator[Condition]:
    """Yields those that a kubelet writes. A gate holds by a condition that somebody else writes."""
    waiting = [init.name for init in inits if init.exit_code != 0]
    said = f"containers with incomplete status: [{' '.join(waiting)}]"
    yield "Initialized", not waiting, "ContainersNotInitialized", said
    unready = [one.name for one in containers if not one.ready]
    over = phase in ("Succeeded", "Failed")
    reason, said = ("PodCompleted", "") if over else ("ContainersNotReady", _list_unready(unready))
    yield "ContainersReady", not unready and not over, reason, said
    missing = [] if unready or over else [*_find_missing(pod)]
    if missing:
        reason, said = "ReadinessGatesNotReady", ", ".join(missing)
    yield "Ready", not unready and not over and not missing, reason, said
    yield "PodScheduled", True, "", ""


def _list_unready(names: Sequence[str]) -> str:
    return f"containers with unready status: [{' '.join(names)}]"


def _find_missing(pod: Resource) -> Iterator[str]:
    known = {one["type"]: one["status"] for one in find(pod, "status", "conditions", otherwise=())}
    for gate in find(pod, "spec", "readinessGates", otherwise=()):
        kind = gate["conditionType"]
        if kind not in known:
            yield f'corresponding condition of pod readiness gate "{kind}" does not exist.'
        elif known[kind] != "True":
            yield f'the status of pod readiness gate "{kind}" is not "True", but {known[kind]}'
