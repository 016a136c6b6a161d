"""What a pod gives to its container: the command with its environment, and the files that are mounted."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.kubelet.api import Resource, find
from tests.kubernetes.kubelet.runs import Command, Mount

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONFIG_ERROR = "CreateContainerConfigError"
CREATING = "ContainerCreating"
TEMPORARY = ("/dev/shm/", "/run/", "/tmp/", "/var/run/")
WRITTEN = re.compile(r"\$(\$|\((?P<name>[-._a-zA-Z0-9]+)\))")


class Blocked(Exception):
    """A container cannot be started now: the reason and the message of its waiting."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Given:
    """Where the values come from that a pod only names."""

    address: str  # of the pod
    host: str
    folder: Path  # of the pod's volumes
    server: tuple[str, int]  # where programs in the pod find the API server
    read: Callable[[str, str], Resource | None]  # the secret or config map of a name in the pod's namespace
    make_token: Callable[[Resource], str]  # for a projected volume's serviceAccountToken


def make_command(pod: Resource, container: Resource, given: Given) -> Command:
    """Returns what a container runs. There is no image that would have a command, so the pod must name one."""
    environment = {
        "PATH": PATH,
        "HOME": "/root",
        "HOSTNAME": pod["metadata"]["name"],
        "KUBERNETES_SERVICE_HOST": given.server[0],
        "KUBERNETES_SERVICE_PORT": str(given.server[1]),
    }
    for variable in container.get("env", ()):
        value = _read_value(pod, variable, given) if "valueFrom" in variable else variable.get("value", "")
        if value is not None:
            environment[variable["name"]] = expand(value, environment)
    words = [*container.get("command", ()), *container.get("args", ())]
    if not words:
        raise Blocked("CreateContainerError", "no command specified")
    spec = pod["spec"]
    rights = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
    if rights.get("runAsNonRoot") and not rights.get("runAsUser"):
        raise Blocked(CONFIG_ERROR, "container has runAsNonRoot and image will run as root")
    return Command(
        # A pod has a network of its own; here it has an address, so that nobody else reaches what listens everywhere.
        [expand(word, environment).replace("=0.0.0.0", f"={given.address}") for word in words],
        environment,
        container.get("workingDir", "/"),
        rights.get("runAsUser"),
        rights.get("runAsGroup"),
        [*_find_mounts(pod, container, given)],
        rights.get("readOnlyRootFilesystem", False),
        "ALL" in find(rights, "capabilities", "drop", otherwise=()),
        find(rights, "capabilities", "add", otherwise=()),
        spec.get("hostPID", False),
        spec.get("shareProcessNamespace", False),
        _score(pod),
    )


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by the value of a known variable; `$$` is a dollar."""

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        return "$" if name is None else known.get(name, found[0])

    return WRITTEN.sub(value, text)


def _read_value(pod: Resource, variable: Resource, given: Given) -> str | None:
    ((kind, wanted),) = variable["valueFrom"].items()
    if kind == "fieldRef":
        return read_field(pod, wanted["fieldPath"], given)
    kinds = {"secretKeyRef": "secret", "configMapKeyRef": "configmap"}
    if kind not in kinds:
        raise Blocked(CONFIG_ERROR, f"this kubelet knows no {kind}")
    data = read_data(kinds[kind], wanted["name"], given, wanted.get("optional", False))
    if wanted["key"] in data:
        return data[wanted["key"]].decode()
    if wanted.get("optional"):
        return None
    raise Blocked(CONFIG_ERROR, f"couldn't find key {wanted['key']} in {kinds[kind]} {wanted['name']}")


def read_field(pod: Resource, path: str, given: Given) -> str:
    known = {"status.podIP": given.address, "status.hostIP": given.host}
    if path in known:
        return known[path]
    label = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
    if label:
        return str(find(pod, "metadata", label[1]).get(label[2], ""))
    return str(find(pod, *path.split("."), otherwise=""))


def read_data(kind: str, name: str, given: Given, optional: bool) -> dict[str, bytes]:
    found = given.read(f"{kind}s", name)
    if found is None and not optional:
        raise Blocked(CONFIG_ERROR, f'{kind} "{name}" not found')
    decode = base64.b64decode if kind == "secret" else str.encode
    return {key: decode(value) for key, value in find(found or {}, "data", otherwise={}).items()}


def _find_mounts(pod: Resource, container: Resource, given: Given) -> Iterator[Mount]:
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    for wanted in container.get("volumeMounts", ()):
        volume = volumes[wanted["name"]]
        source = Path(_find_source(pod, volume, given)) / wanted.get("subPath", "")
        path = wanted["mountPath"]
        # One that is missing is made on this machine, whose files the container sees: only where nothing stays.
        if not Path(path).exists() and not path.startswith(TEMPORARY):
            raise Blocked("CreateContainerError", f"this machine has no {path}")
        yield Mount(str(source), path, wanted.get("readOnly", False))


def _find_source(pod: Resource, volume: Resource, given: Given) -> str:
    (kind,) = volume.keys() - {"name"}
    wanted: Any = volume[kind]
    if kind == "hostPath":
        place = Path(wanted["path"])
        if wanted.get("type") == "DirectoryOrCreate":
            place.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            raise Blocked(CREATING, f"hostPath type check failed: {place} is not there")
        return str(place)
    folder = given.folder / volume["name"]
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "emptyDir":
        folder.chmod(0o777)  # for any user
    sources = wanted.get("sources", ()) if kind == "projected" else [{kind: wanted}]
    for each in sources:
        for name, content in _project(pod, each, given):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return str(folder)


def _project(pod: Resource, source: Resource, given: Given) -> Iterator[tuple[str, bytes]]:
    ((kind, wanted),) = source.items()
    if kind == "serviceAccountToken":
        yield wanted["path"], given.make_token(wanted).encode()
    elif kind == "downwardAPI":
        for item in wanted["items"]:
            yield item["path"], read_field(pod, item["fieldRef"]["fieldPath"], given).encode()
    elif kind in ("secret", "configMap"):
        name = wanted.get("secretName") or wanted["name"]
        data = read_data(kind.lower(), name, given, wanted.get("optional", False))
        paths = {item["key"]: item["path"] for item in wanted.get("items", ())} or {key: key for key in data}
        yield from ((path, data[key]) for key, path in paths.items())
    elif kind != "emptyDir":
        raise Blocked(CREATING, f"this kubelet makes no volume of the kind {kind}")


def _score(pod: Resource) -> int:
    """Returns who goes first when memory is short, by the pod's class, nearly as a kubelet says it."""
    return {"Guaranteed": -997, "BestEffort": 1000}.get(find(pod, "status", "qosClass", otherwise=""), 900)
