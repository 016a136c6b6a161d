"""Writes the ReplicaSet of a copy: one pod on this node, ready once the limits of the copy are verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agents.host.stopping import TERM_SECONDS
from agents.kubernetes.api import Object
from agents.kubernetes.names import CONTAINER, COPY, GATE, HASH, NODE, PART, TAINT, hash_copy
from agents.runtime import Launch

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  where clients of MPS and its server meet
_SCRATCH = ("/tmp", "/run")  # noqa: S108  the root cannot be written to


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What all copies of a node have in common."""

    node: str
    user: int
    group: int
    image: str = ""  # of templates that name none: the agent's own, which has the shipped programs
    runtime_class: str = ""  # that lets containers see the GPUs which NVIDIA_VISIBLE_DEVICES names


def write_replica_set(launch: Launch, settings: PodSettings) -> Object:
    """Returns the object; its name says which copy it is, so that a second start of a copy is refused."""
    name = f"copy-{hash_copy(launch.copy)}"
    marked = {HASH: hash_copy(launch.copy)}
    labels = {**marked, PART: "copy", NODE: settings.node}
    metadata = {"name": name, "labels": labels, "annotations": {COPY: launch.copy}}
    template = {
        "metadata": {"labels": labels, "annotations": {COPY: launch.copy}},
        "spec": _write_pod(launch, settings),
    }
    spec = {"replicas": 1, "selector": {"matchLabels": marked}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}


def _write_pod(launch: Launch, settings: PodSettings) -> Object:
    volumes = list(_list_volumes(launch))
    here = [{"key": "metadata.name", "operator": "In", "values": [settings.node]}]
    # Affinity, and no nodeName: that would put its successor on a node that is being drained.
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": here}]}}
    filled = launch.filled
    saves = filled.checkpoint_seconds if filled.checkpoint_signal or filled.checkpoint_command else 0.0
    spec: Object = {
        "affinity": {"nodeAffinity": affinity},
        "tolerations": [{"key": TAINT, "operator": "Exists"}],
        "readinessGates": [{"conditionType": GATE}],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(filled.drain_seconds + saves + TERM_SECONDS) + 1,
        "securityContext": {
            "runAsUser": settings.user,
            "runAsGroup": settings.group,
            "runAsNonRoot": settings.user != 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_write_container(launch, settings, volumes)],
        "volumes": [volume for volume, _ in volumes],
    }
    if settings.runtime_class and launch.gpu:
        spec["runtimeClassName"] = settings.runtime_class
    return spec


def _write_container(launch: Launch, settings: PodSettings, volumes: list[tuple[Object, Object]]) -> Object:
    program, *arguments = launch.filled.argv
    container: Object = {
        "name": CONTAINER,
        "image": launch.filled.image or settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [program],
        "args": arguments,
        "env": [{"name": name, "value": value} for name, value in sorted(_environment(launch).items())],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [mount for _, mount in volumes],
    }
    if launch.port:
        container["ports"] = [{"name": "serves", "containerPort": launch.port}]
    if launch.filled.drain_seconds and launch.port:
        # Others may delete the pod without asking us: meanwhile the agent takes it out of the routes.
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": max(1, int(launch.filled.drain_seconds))}}}
    return container


def _environment(launch: Launch) -> dict[str, str]:
    """Returns the environment, with the limits last, so that a template cannot lift them."""
    ours = {"GPUWRIGHT_COPY": launch.copy, "HOME": "/tmp", "USER": "gpuwright"}  # noqa: S108  inside
    if launch.gpu:
        ours |= {"NVIDIA_VISIBLE_DEVICES": launch.gpu, "CUDA_VISIBLE_DEVICES": launch.gpu}
    return dict(launch.filled.environment) | ours | dict(launch.limits)


def _list_volumes(launch: Launch) -> Iterator[tuple[Object, Object]]:
    """Yields each volume and how it is mounted: a folder is at the same path inside and outside."""
    for number, path in enumerate(_SCRATCH):
        yield {"name": f"scratch-{number}", "emptyDir": {}}, {"name": f"scratch-{number}", "mountPath": path}
    shared = (_SHARED_MEMORY,) if launch.gpu else ()
    for number, folder in enumerate((*shared, *launch.folders)):
        path, read_only = folder.removesuffix(":ro"), folder.endswith(":ro")
        name = f"folder-{number}"
        mount: Object = {"name": name, "mountPath": path, "readOnly": read_only}
        yield {"name": name, "hostPath": {"path": path, "type": "Directory"}}, mount
