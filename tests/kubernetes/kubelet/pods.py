"""One pod on its node: a thread that starts its containers, says their status, and ends them with the pod."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.kubernetes.kubelet.api import Api, Away, Resource, find
from tests.kubernetes.kubelet.containers import BackOff, Container, stamp
from tests.kubernetes.kubelet.devices import RESOURCE, Devices
from tests.kubernetes.kubelet.given import CREATING, Blocked, Given, make_command
from tests.kubernetes.kubelet.groups import remove
from tests.kubernetes.kubelet.runs import Command
from tests.kubernetes.kubelet.statuses import find_conditions, find_phase

HOST = "127.0.0.1"
LOOK_SECONDS = 0.1  # between two looks at containers where no news of the pod come
ENDING_SECONDS = 1.0  # that a pod has at least which was deleted at once


@dataclass(frozen=True, slots=True)
class Node:
    """What all pods of a kubelet share."""

    api: Api
    folder: Path
    groups: Path
    images: set[str]
    back_off: BackOff
    devices: Devices
    runtime_classes: Mapping[str, Mapping[str, str]]


class Pod:
    """It goes on from what its folder says."""

    def __init__(self, node: Node, found: Resource) -> None:
        self.found = found  # as the server had it last
        self.gone = False  # from the server
        self.done = False
        metadata = found["metadata"]
        self.name, self.namespace, self.uid = metadata["name"], metadata["namespace"], metadata["uid"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.address = HOST if found["spec"].get("hostNetwork") else find_address(self.uid)
        self.folder = node.folder / self.uid
        self._node = node
        self._policy: str = found["spec"].get("restartPolicy", "Always")
        self.inits = self._make_containers("initContainers")
        self.containers = self._make_containers("containers")
        self._since = {one["type"]: one for one in find(found, "status", "conditions", otherwise=())}
        self._started = find(found, "status", "startTime") or stamp(time.time())
        self._written: Resource = {}
        self._ending: float | None = None
        self._news, self._stopped = Event(), False
        self._thread = Thread(target=self._live, name=f"pod {self.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, found: Resource, gone: bool = False) -> None:
        """Says what the server has now."""
        self.found, self.gone = found, self.gone or gone
        self._news.set()

    def stop(self) -> None:
        """Leaves the containers as they are; `join` waits until it does nothing any more."""
        self._stopped = True
        self._news.set()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def find_container(self, name: str) -> Container | None:
        return next((one for one in (*self.inits, *self.containers) if one.name == name), None)

    def _make_containers(self, kind: str) -> list[Container]:
        place = (self.folder / "containers", self._node.groups, self.uid, self.address, self._node.back_off)
        return [Container(spec, *place) for spec in self.found["spec"].get(kind, ())]

    def _live(self) -> None:
        while not self._stopped and not self.done:
            with suppress(Away):
                self._look()
            self._news.wait(LOOK_SECONDS)
            self._news.clear()

    def _look(self) -> None:
        """Takes the next step of its life."""
        if self.gone or find(self.found, "metadata", "deletionTimestamp"):
            self._end()
        elif find(self.found, "status", "phase") not in ("Succeeded", "Failed"):
            self._keep()
            self._write_status()

    def _keep(self) -> None:
        policy = "OnFailure" if self._policy == "Always" else self._policy
        for init in self.inits:
            init.keep(policy, self._make_command)
            if init.exit_code != 0:
                return
        for one in self.containers:
            one.keep(self._policy, self._make_command)

    def _end(self) -> None:
        now = time.monotonic()
        self._ending = self._ending or now
        seconds = max(ENDING_SECONDS, find(self.found, "metadata", "deletionGracePeriodSeconds", otherwise=0))
        left = [one for one in (*self.inits, *self.containers) if not one.end(seconds)]
        if not self.gone:
            self._write_status()
        if left:
            return
        if not self.gone:
            now_of_this_pod = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            self._node.api.delete(self.path, {"apiVersion": "v1", "kind": "DeleteOptions", **now_of_this_pod})
        for run in (run for one in (*self.inits, *self.containers) for run in one.runs):
            run.remove_groups()
        remove(self._node.groups / "kubepods" / f"pod{self.uid}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.done = True

    def _make_command(self, container: Resource) -> Command:
        image = container["image"]
        if image not in self._node.images:
            if container.get("imagePullPolicy") == "Never":
                said = f'Container image "{image}" is not present with pull policy of Never'
                raise Blocked("ErrImageNeverPull", said)
            raise Blocked("ErrImagePull", f'failed to pull and unpack image "{image}": not found')
        api = self._node.api
        given = Given(
            self.address, HOST, self.folder / "volumes", api.address,
            lambda kind, name: api.get(f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"), self._make_token,
        )  # fmt: skip
        command = make_command(self.found, container, given)
        seen = self._node.runtime_classes.get(self.found["spec"].get("runtimeClassName", ""), {})
        command = replace(command, environment={**command.environment, **seen})
        wanted = int(find(container, "resources", "limits", RESOURCE, otherwise=0))
        if not wanted:
            return command
        gpus = self._node.devices.give(self.folder, wanted)
        return replace(command, environment={**command.environment, "NVIDIA_VISIBLE_DEVICES": ",".join(gpus)})

    def _make_token(self, wanted: Resource) -> str:
        account = self.found["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}
        spec: dict[str, Any] = {"expirationSeconds": wanted.get("expirationSeconds", 3600), "boundObjectRef": bound}
        spec["audiences"] = [wanted["audience"]] if wanted.get("audience") else []
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        made = self._node.api.create(path, asked)
        if made is None:
            raise Blocked(CREATING, f'serviceaccounts "{account}" not found')
        return str(made["status"]["token"])

    def _write_status(self) -> None:
        """Says what is new: others' conditions stay, for conditions are merged by their type."""
        policy = "Never" if self._ending else self._policy
        phase = find_phase(self.inits, self.containers, self._policy, self._ending is not None)
        addresses = {"hostIP": HOST, "podIP": self.address, "podIPs": [{"ip": self.address}]}
        status: Resource = {
            "phase": phase,
            "startTime": self._started,
            "containerStatuses": [one.read_status(policy) for one in self.containers],
            "conditions": [
                self._date(kind, holds, reason, said)
                for kind, holds, reason, said in find_conditions(self.found, self.inits, self.containers, phase)
            ],
            **addresses,
        }
        if self.inits:
            status["initContainerStatuses"] = [one.read_status("OnFailure") for one in self.inits]
        if status != self._written:
            self._node.api.patch(f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": status})
            self._written = status
            self._since = {one["type"]: one for one in status["conditions"]}

    def _date(self, kind: str, holds: bool, reason: str, said: str) -> Resource:
        """Returns a condition with the time since when it is so."""
        status, before = str(holds), self._since.get(kind, {})
        since = before["lastTransitionTime"] if before.get("status") == status else stamp(time.time())
        # None takes a reason away that does not count any more.
        why = {"reason": None, "message": None} if holds else {"reason": reason, "message": said}
        return {"type": kind, "status": status, "lastTransitionTime": since, **why}


def find_address(uid: str) -> str:
    """Returns an address of the loopback for each pod: 127.x.y.z, none of which is that of the host."""
    place = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4])
    return f"127.{1 + place % 254}.{(place >> 8) % 256}.{1 + (place >> 16) % 254}"
