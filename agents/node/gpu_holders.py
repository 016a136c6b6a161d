"""Holds the GPUs of a node of a cluster by pods of ours, so that its scheduler gives them to nobody else.

A GPU whose SMs we divide belongs to MPS alone: any other pod that gets it fails. The device plugin gives each holder
one GPU and says which. A node where somebody else shares its GPUs has two owners, so nothing of ours starts there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from agents.host import clocks
from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi, Object
from agents.kubernetes.following import Follower
from agents.kubernetes.names import HASH, NODE, PART, container_of
from agents.runtime import proc
from agents.runtime.containers import Containers
from agents.runtime.replica_set import PodSettings, write_holder

RESOURCE = "nvidia.com/gpu"
SHARING, REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVERS = ("gpu.nvidia.com",)
PERIOD_SECONDS = 2.0
ASK_SECONDS = 30.0  # between two questions to the API server
FIRST_LIST_SECONDS = 5.0
KEPT_SECONDS = 60.0  # in which a GPU counts as held whose holder is being replaced
_GONE, _EXISTS = 404, 409

log = logging.getLogger(__name__)


class GpuHolders:
    """One pod for each GPU that the device plugin gives out; nothing on nodes without one."""

    def __init__(
        self,
        api: KubernetesApi,
        nodes: Follower,
        settings: PodSettings,
        clock: Callable[[], float] = clocks.seconds,
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._settings = settings
        self._clock = clock
        selected = {"labelSelector": f"{PART}=holder,{NODE}={settings.node}"}
        self._pods = Follower(api, f"/api/v1/namespaces/{api.namespace}/pods", selected)
        self._sets = f"/apis/apps/v1/namespaces/{api.namespace}/replicasets"
        self._containers = Containers()
        self._gpus_of: dict[str, Collection[str]] = {}  # by the container of a holder
        self._asked_at = float("-inf")
        self._drivers: Sequence[str] = ()
        self._made: set[str] = set()
        self._held_at: dict[str, float] = {}
        self._unheld: Mapping[str, str] = {}
        self._pods.start()

    def unheld(self) -> Mapping[str, str]:
        """Returns the GPUs on which nothing may start, and why."""
        return self._unheld

    def watch(self, stopping: threading.Event, list_gpus: Callable[[], Collection[str]]) -> None:
        """Looks again and again until `stopping` is set."""
        while not stopping.is_set():
            with suppress(ApiAway):  # what was known stays so
                self.look(sorted(list_gpus()))
            stopping.wait(PERIOD_SECONDS)
        self.close()

    def close(self) -> None:
        """Follows no further; the holders stay."""
        self._pods.close()

    def look(self, gpus: Sequence[str]) -> None:
        """Makes the holders that are missing, and finds out which GPUs they have."""
        node = self._nodes.objects().get(self._settings.node) or {}
        given_out = count_given_out(node)
        if self._clock() - self._asked_at >= ASK_SECONDS:
            self._drivers = list_drivers(self._api, self._settings.node)
            self._made.clear()  # one that somebody has deleted is made again
            self._asked_at = self._clock()
        if why := find_other_owner(node, len(gpus), self._drivers):
            self._say(dict.fromkeys(gpus, why))
            return
        self._pods.wait(lambda _: True, FIRST_LIST_SECONDS)
        there = {pod["metadata"]["labels"].get(HASH) for pod in self._pods.objects().values()}
        for number in range(given_out):
            self._make(number, there, node)
        held = self._find_held(gpus)
        self._say({gpu: self._why_unheld() for gpu in gpus if given_out and gpu not in held})

    def _make(self, number: int, there: Collection[str], node: Object) -> None:
        holder = write_holder(number, self._settings, RESOURCE, node)
        name = str(holder["metadata"]["name"])
        if name in self._made or name in there:
            return
        try:
            self._api.create(self._sets, holder)
        except ApiRefused as refused:
            if refused.status != _EXISTS:  # an agent before this one has made it
                raise ApiAway(f"a holder of a GPU is not made: {refused}") from refused
        self._made.add(name)

    def _find_held(self, gpus: Collection[str]) -> Collection[str]:
        """Returns the GPUs that holders have, or had a moment ago."""
        containers = [container for pod in self._pods.objects().values() if (container := container_of(pod))]
        now = self._clock()
        # A device plugin that speaks CDI does not tell the container; but as many holders as GPUs have them all.
        self._gpus_of = {one: self._gpus_of.get(one) or self._read_gpus(one) for one in containers}
        found = set(gpus) if len(containers) >= len(gpus) else {gpu for one in containers for gpu in self._gpus_of[one]}
        self._held_at |= dict.fromkeys(found, now)
        return {gpu for gpu, at in self._held_at.items() if now - at <= KEPT_SECONDS}

    def _read_gpus(self, container: str) -> Collection[str]:
        first = self._containers.find_first(container, PERIOD_SECONDS)
        return proc.read_variable(first.pid, "NVIDIA_VISIBLE_DEVICES").split(",") if first else ()

    def _why_unheld(self) -> str:
        waiting = [pod for pod in self._pods.objects().values() if not container_of(pod)]
        conditions = [known for pod in waiting for known in (pod.get("status") or {}).get("conditions") or ()]
        said = [str(known.get("message", "")) for known in conditions if known.get("status") != "True"]
        return f"no pod of gpuwright holds it, so another may get it: {next(filter(None, said), 'it starts')}"[:500]

    def _say(self, unheld: Mapping[str, str]) -> None:
        for gpu, why in unheld.items():
            if gpu not in self._unheld:
                log.warning("nothing starts on GPU %s: %s", gpu, why)
        self._unheld = unheld


def find_other_owner(node: Object, count: int, drivers: Sequence[str]) -> str:
    """Returns who else divides the `count` GPUs of this node; empty where nobody does. `drivers` are those of DRA."""
    given_out = count_given_out(node)
    labels = (node.get("metadata") or {}).get("labels") or {}
    shares = str(labels.get(SHARING, "none")), str(labels.get(REPLICAS, "1"))
    if shares[0] not in ("none", "") or shares[1] not in ("0", "1"):
        how = f"{SHARING}={shares[0]}, {REPLICAS}={shares[1]}"
        return f"the device plugin shares GPUs of this node ({how}): turn it off"
    if given_out > count:
        return f"this node offers {given_out} of {RESOURCE} and has {count} GPUs: turn its time-slicing off"
    if drivers and given_out:
        return f"this node's GPUs are given out twice: as {RESOURCE}, and by DRA ({drivers[0]}); turn one off"
    if drivers:
        return f"this node's GPUs are given out by DRA ({drivers[0]}), which gpuwright does not claim"
    return ""


def list_drivers(api: KubernetesApi, node: str) -> list[str]:
    """Returns the drivers of DRA that give out GPUs of the node."""
    try:
        slices = api.get(SLICES, fieldSelector=f"spec.nodeName={node}").get("items") or ()
    except ApiRefused as refused:
        if refused.status == _GONE:
            return []  # a cluster without DRA
        raise ApiAway(str(refused)) from refused
    return [name for found in slices if (name := (found.get("spec") or {}).get("driver")) in DRIVERS]


def count_given_out(node: Object) -> int:
    """Returns how many GPUs of the node the device plugin gives out."""
    text = str(((node.get("status") or {}).get("allocatable") or {}).get(RESOURCE, "0"))
    return int(text) if text.isdecimal() else 0
