"""Writes ReplicaSets of one pod on this node: of a copy, ready once its limits are verified, and of a GPU's holder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agents.host.stopping import TERM_SECONDS, find_stay_seconds
from agents.kubernetes.api import Object
from agents.kubernetes.names import CONTAINER, COPY, GATE, GPU, HASH, NODE, PART, TAINT, hash_copy, name_holder
from agents.runtime import Launch
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  where clients of MPS and its server meet
# Else pods of a node that nobody hears of for five minutes are deleted: all at once, when it is heard of again.
_UNHEARD = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SCRATCH = ("/tmp", "/run")  # noqa: S108  the root cannot be written to


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What all copies of a node have in common."""

    node: str
    user: int
    group: int
    image: str = ""  # of templates that name none: the agent's own, which has the shipped programs
    priority_class: str = ""  # so that no pod of others takes their places
    runtime_class: str = ""  # that lets containers see the GPUs which NVIDIA_VISIBLE_DEVICES names
    roots: tuple[str, ...] = ()  # folders of the node that copies may have, in which they may have made links
    part: str = "copy"  # or `trial`, which no agent takes for a copy


def write_replica_set(
    launch: Launch, settings: PodSettings, node: Object | None = None, claims: Sequence[str] = ()
) -> Object:
    """Returns the object; its name says which copy it is, so that a second start of a copy is refused.

    `claims` are those of its GPUs, where GPUs are claimed.
    """
    name, marked = hash_copy(launch.copy), {HASH: hash_copy(launch.copy), PART: settings.part}
    pod = _add_claims(_write_copy(launch, settings), claims)
    return _write(f"copy-{name}", marked, {COPY: launch.copy}, pod, settings, node)


def write_holder(gpu: str, settings: PodSettings, node: Object | None = None, claim: str = "") -> Object:
    """Returns the ReplicaSet of a pod that does nothing but to have one GPU: that of the claim, or any."""
    name = name_holder(settings.node, gpu)
    container: Object = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep"],
        "args": ["infinity"],
        **({} if claim else {"resources": {"limits": {GPU: "1"}}}),
        "securityContext": _confine(),
    }
    pod = {**_write_pod(settings, [container]), "terminationGracePeriodSeconds": 1}
    pod = _add_claims(pod, [claim] if claim else [])
    return _write(name, {HASH: name, PART: "holder"}, {}, pod, settings, node)


def _write(name: str, marked: Object, notes: Object, pod: Object, settings: PodSettings, node: Object | None) -> Object:
    """Returns a ReplicaSet of one pod, which Kubernetes deletes with its node."""
    known = (node or {}).get("metadata") or {}
    owner = {"apiVersion": "v1", "kind": "Node", "name": settings.node, "uid": known.get("uid")}
    metadata = {"labels": {**marked, NODE: settings.node}, "annotations": notes}
    spec = {"replicas": 1, "selector": {"matchLabels": marked}, "template": {"metadata": metadata, "spec": pod}}
    named = {"name": name, **metadata, **({"ownerReferences": [owner]} if owner["uid"] else {})}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": named, "spec": spec}


def _write_pod(settings: PodSettings, containers: list[Object]) -> Object:
    """Returns the spec that all pods of ours have in common."""
    here = [{"key": "metadata.name", "operator": "In", "values": [settings.node]}]
    # Affinity, and no nodeName: that would put its successor on a node that is being drained.
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": here}]}}
    classes = {"priorityClassName": settings.priority_class, "runtimeClassName": settings.runtime_class}
    return {
        "affinity": {"nodeAffinity": affinity},
        "tolerations": [
            {"key": TAINT, "operator": "Exists"},
            *({"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _UNHEARD),
        ],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsUser": settings.user,
            "runAsGroup": settings.group,
            "runAsNonRoot": settings.user != 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        **{key: name for key, name in classes.items() if name},
    }


def _add_claims(pod: Object, claims: Sequence[str]) -> Object:
    """Gives the pod its part of claims that are there already, and its container what is claimed."""
    if claims:
        named = {f"gpu-{number}": claim for number, claim in enumerate(claims)}
        pod["resourceClaims"] = [{"name": name, "resourceClaimName": claim} for name, claim in named.items()]
        for container in pod["containers"]:
            container["resources"] = {"claims": [{"name": name} for name in named]}
    return pod


def _write_copy(launch: Launch, settings: PodSettings) -> Object:
    volumes = [_begin_at_root(volume, mount, settings.roots) for volume, mount in _list_volumes(launch)]
    filled = launch.filled
    saves = filled.checkpoint_seconds if filled.checkpoint_signal or filled.checkpoint_command else 0.0
    ending = _find_stay_seconds(launch) + filled.drain_seconds + saves + TERM_SECONDS
    pod = _write_pod(settings, [_write_container(launch, settings, volumes)])
    if filled.confined and filled.confined.user is not None:
        pod["securityContext"] |= {"runAsUser": filled.confined.user, "runAsGroup": filled.confined.user}
    return {
        **pod,
        "readinessGates": [{"conditionType": GATE}],
        # A copy that were the first process of its namespace would not end by SIGTERM, nor stop itself, by default.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": int(ending) + 1,
        "volumes": [volume for volume, _ in volumes],
    }


def _write_container(launch: Launch, settings: PodSettings, volumes: list[tuple[Object, Object]]) -> Object:
    confined = launch.filled.confined
    words = [_escape(word) for word in launch.filled.argv]
    container: Object = {
        "name": CONTAINER,
        "image": launch.filled.image or settings.image,
        "imagePullPolicy": "IfNotPresent",
        # A user's own image names its program; a template does it for an image.
        **({"args": words} if confined else {"command": words[:1], "args": words[1:]}),
        "env": list(_list_variables(launch)),
        "securityContext": _confine(),
        "volumeMounts": [mount for _, mount in volumes],
    }
    if launch.port:
        port = confined.port if confined and confined.port else launch.port
        container["ports"] = [{"name": "serves", "containerPort": port}]
    if stays := _find_stay_seconds(launch):
        # Others may delete the pod without asking us: it serves until its successor does, and then drains.
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": int(stays + launch.filled.drain_seconds)}}}
    return container


def _find_stay_seconds(launch: Launch) -> float:
    """Returns how long a pod that somebody deletes stays for its successor to come up beside it."""
    return find_stay_seconds(launch.filled.drain_seconds) if launch.filled.drain_seconds and launch.port else 0.0


def _escape(text: str) -> str:
    """Returns what the kubelet gives to the program as it is: it would put variables into `$(NAME)`."""
    return text.replace("$", "$$")


def _confine() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _list_variables(launch: Launch) -> Iterator[Object]:
    """Yields the environment: secrets by their names alone, and nothing that lifts a limit."""
    confined = launch.filled.confined
    # The user need not be known to a template's image, whose root cannot be written to: caches go to the scratch.
    ours = {"GPUWRIGHT_COPY": launch.copy, **({} if confined else {"HOME": "/tmp", "USER": "gpuwright"})}  # noqa: S108
    if launch.gpu:
        ours |= {"NVIDIA_VISIBLE_DEVICES": launch.gpu, VISIBLE_DEVICES_VARIABLE: launch.gpu}
    plain = dict(launch.filled.environment) | ours | dict(launch.limits)
    secrets = dict(confined.secrets) if confined else {}
    for name, value in sorted(plain.items()):
        yield {"name": name, "value": _escape(value)}
    for name, place in sorted(secrets.items()):
        secret, _, key = place.partition("/")
        if name not in plain:
            yield {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _list_volumes(launch: Launch) -> Iterator[tuple[Object, Object]]:
    """Yields each volume and how it is mounted: a folder is at the same path inside and outside, but users' own."""
    for number, path in enumerate(_SCRATCH):
        yield {"name": f"scratch-{number}", "emptyDir": {}}, {"name": f"scratch-{number}", "mountPath": path}
    shared = (_SHARED_MEMORY,) if launch.gpu else ()
    for number, folder in enumerate((*shared, *launch.folders)):
        path, *more = folder.split(":")
        inside = next((word for word in more if word.startswith("/")), path)
        name = f"folder-{number}"
        mount: Object = {"name": name, "mountPath": inside, "readOnly": "ro" in more}
        yield {"name": name, "hostPath": {"path": path, "type": "Directory"}}, mount


def _begin_at_root(volume: Object, mount: Object, roots: tuple[str, ...]) -> tuple[Object, Object]:
    """Mounts what lies in a root as a part of it: the kubelet follows links on the way to a volume, but not in it."""
    path = str(volume.get("hostPath", {}).get("path", ""))
    root = next((root for root in roots if path.startswith(f"{root}/")), "")
    if not root:
        return volume, mount
    return volume | {"hostPath": volume["hostPath"] | {"path": root}}, mount | {"subPath": path[len(root) + 1 :]}
