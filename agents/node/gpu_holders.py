"""Holds the GPUs of a node of a cluster by pods of ours, so that its scheduler gives them to nobody else.

A GPU whose SMs we divide belongs to MPS alone: any other pod that gets it fails. A device plugin gives each holder
one GPU and says which; with DRA each holder has the claim of one. A node where somebody else shares its GPUs has two
owners, so nothing of ours starts there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from agents.host import clocks
from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi, Object
from agents.kubernetes.following import Follower
from agents.kubernetes.names import DRIVER, GPU, HASH, NODE, PART, container_of, name_holder
from agents.node.gpu_claims import FIRST_LIST_SECONDS, GpuClaims, OfferedGpus, read_claimed, read_offered
from agents.runtime import proc
from agents.runtime.containers import Containers
from agents.runtime.pods import GpuUnheld
from agents.runtime.replica_set import PodSettings, write_holder

SHARING, REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"
PERIOD_SECONDS = 2.0
ASK_SECONDS = 30.0  # between two questions to the API server
KEPT_SECONDS = 60.0  # in which a GPU counts as held whose holder is being replaced
_GONE, _EXISTS = 404, 409

log = logging.getLogger(__name__)


class GpuHolders:
    """One pod for each GPU that a device plugin or DRA gives out; nothing on nodes whose GPUs nobody gives out."""

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
        self._offered: OfferedGpus | None = None
        self._claims: GpuClaims | None = None
        self._claimed: Mapping[str, str] = {}  # the claim of each GPU, empty if none; before the first look no GPU
        self._made: set[str] = set()
        self._held_at: dict[str, float] = {}
        self._unheld: Mapping[str, str] = {}
        self._pods.start()

    def unheld(self) -> Mapping[str, str]:
        """Returns the GPUs on which nothing may start, and why."""
        return self._unheld

    def find_claims(self, gpus: Collection[str]) -> Sequence[str]:
        """Returns by which claims a copy gets these GPUs; raises GpuUnheld as long as one of them is not held."""
        claimed, unheld = self._claimed, self._unheld
        for gpu in gpus:
            if gpu in unheld or gpu not in claimed:
                raise GpuUnheld(f"nothing starts on GPU {gpu}: {unheld.get(gpu, 'who holds it is not known yet')}")
        return [claimed[gpu] for gpu in gpus if claimed[gpu]]

    def watch(self, stopping: threading.Event, list_gpus: Callable[[], Collection[str]]) -> None:
        """Looks again and again until `stopping` is set."""
        before = ""
        while not stopping.is_set():
            why = ""
            try:
                self.look(sorted(list_gpus()))
            except ApiAway as error:
                why = str(error)
            except Exception as error:  # such as of an object that is not as Kubernetes has them
                why = repr(error)
            if why and why != before:
                log.warning("what is known of who holds the GPUs stays as it was: %s", why)
            before = why
            stopping.wait(PERIOD_SECONDS)
        self.close()

    def close(self) -> None:
        """Follows no further; the holders stay."""
        self._pods.close()
        if self._claims:
            self._claims.close()

    def look(self, gpus: Sequence[str]) -> None:
        """Makes the holders that are missing, and finds out which GPUs they have."""
        node = self._nodes.objects().get(self._settings.node) or {}
        if self._clock() - self._asked_at >= ASK_SECONDS:
            self._offered = self._read_offered(node)
            self._made.clear()  # one that somebody has deleted is made again
            self._asked_at = self._clock()
        if why := find_other_owner(node, len(gpus), self._offered):
            self._say(dict.fromkeys(gpus, why))
            return
        self._pods.wait(lambda _: True, FIRST_LIST_SECONDS)
        there = {pod["metadata"]["labels"].get(HASH) for pod in self._pods.objects().values()}
        claimed = self._claim(gpus, node)
        for holder in self._write_holders(claimed, node):
            self._make(holder, there)
        self._release(gpus, claimed, there)
        is_given_out = bool(count_given_out(node)) or self._offered is not None
        held = self._find_held(claimed) if is_given_out else gpus
        self._say({gpu: self._why_unheld(gpu, claimed) for gpu in gpus if gpu not in held})
        self._claimed = claimed

    def _read_offered(self, node: Object) -> OfferedGpus | None:
        """Returns what DRA gives out; while its driver is away, what we have of it."""
        offered = read_offered(self._api, self._settings.node)
        if offered or count_given_out(node):
            return offered
        return read_claimed(self._api, self._settings.node)

    def _claim(self, gpus: Sequence[str], node: Object) -> Mapping[str, str]:
        """Returns the GPUs and the claims of them, which are there then; empty ones where DRA gives out none."""
        if self._offered is None:
            return dict.fromkeys(gpus, "")
        self._claims = self._claims or GpuClaims(self._api, self._settings.node)
        return self._claims.make([gpu for gpu in gpus if gpu in self._offered.gpus], node)

    def _write_holders(self, claimed: Mapping[str, str], node: Object) -> Sequence[Object]:
        """Returns the ReplicaSets that are to be there."""
        if self._offered is None:
            return [write_holder(str(number), self._settings, node) for number in range(count_given_out(node))]
        return [write_holder(gpu, self._settings, node, claim) for gpu, claim in claimed.items()]

    def _make(self, holder: Object, there: Collection[str]) -> None:
        name = str(holder["metadata"]["name"])
        if name in self._made or name in there:
            return
        try:
            self._api.create(self._sets, holder)
        except ApiRefused as refused:
            if refused.status != _EXISTS:  # an agent before this one has made it
                raise ApiAway(f"a holder of a GPU is not made: {refused}") from refused
        self._made.add(name)

    def _release(self, gpus: Collection[str], claimed: Mapping[str, str], there: Collection[str]) -> None:
        """Takes holders out of claims that somebody deletes: such a claim stays until the last pod leaves it."""
        for gpu in gpus:
            name = name_holder(self._settings.node, gpu)
            if self._offered and gpu in self._offered.gpus and gpu not in claimed and name in there:
                self._made.discard(name)
                try:
                    self._api.delete(f"{self._sets}/{name}")
                except ApiRefused as refused:
                    if refused.status != _GONE:
                        raise ApiAway(f"a holder of a GPU is not deleted: {refused}") from refused

    def _find_held(self, gpus: Collection[str]) -> Collection[str]:
        """Returns the GPUs that holders have, or had a moment ago."""
        now = self._clock()
        self._held_at |= dict.fromkeys(self._find_held_now(gpus), now)
        return {gpu for gpu, at in self._held_at.items() if now - at <= KEPT_SECONDS}

    def _find_held_now(self, gpus: Collection[str]) -> Collection[str]:
        if self._offered is not None and self._claims:
            return self._claims.find_allocated(gpus)
        containers = [container for pod in self._pods.objects().values() if (container := container_of(pod))]
        # A device plugin that speaks CDI does not tell the container; but as many holders as GPUs have them all.
        self._gpus_of = {one: self._gpus_of.get(one) or self._read_gpus(one) for one in containers}
        return set(gpus) if len(containers) >= len(gpus) else {gpu for one in containers for gpu in self._gpus_of[one]}

    def _read_gpus(self, container: str) -> Collection[str]:
        first = self._containers.find_first(container, PERIOD_SECONDS)
        return proc.read_variable(first.pid, "NVIDIA_VISIBLE_DEVICES").split(",") if first else ()

    def _why_unheld(self, gpu: str, claimed: Collection[str]) -> str:
        if self._offered and gpu not in self._offered.gpus:
            return f"DRA ({DRIVER}) does not offer it: look at its driver's ResourceSlices and at the GPU's health"
        if self._offered and gpu not in claimed:
            return "somebody has deleted its claim, which goes with the last copy there; then there is a new one"
        own = name_holder(self._settings.node, gpu) if self._offered else ""  # a device plugin's is of any GPU
        pods = (pod for pod in self._pods.objects().values() if own in ("", pod["metadata"]["labels"].get(HASH)))
        waiting = [pod for pod in pods if not container_of(pod)]
        conditions = [known for pod in waiting for known in (pod.get("status") or {}).get("conditions") or ()]
        said = [str(known.get("message", "")) for known in conditions if known.get("status") != "True"]
        return f"no pod of gpuwright holds it, so another may get it: {next(filter(None, said), 'it starts')}"[:500]

    def _say(self, unheld: Mapping[str, str]) -> None:
        for gpu, why in unheld.items():
            if gpu not in self._unheld:
                log.warning("nothing starts on GPU %s: %s", gpu, why)
        self._unheld = unheld


def find_other_owner(node: Object, count: int, offered: OfferedGpus | None) -> str:
    """Returns who else divides the `count` GPUs of this node; empty where nobody does."""
    given_out = count_given_out(node)
    labels = (node.get("metadata") or {}).get("labels") or {}
    shares = str(labels.get(SHARING, "none")), str(labels.get(REPLICAS, "1"))
    if shares[0] not in ("none", "") or shares[1] not in ("0", "1"):
        how = f"{SHARING}={shares[0]}, {REPLICAS}={shares[1]}"
        return f"the device plugin shares GPUs of this node ({how}): turn it off"
    if given_out > count:
        return f"this node offers {given_out} of {GPU} and has {count} GPUs: turn its time-slicing off"
    if offered and given_out:
        return f"this node's GPUs are given out twice: as {GPU}, and by DRA ({DRIVER}); turn one off"
    if offered and offered.outdated:
        return f"DRA ({DRIVER}) gives out this node's GPUs, and gpuwright claims them from Kubernetes 1.34 on"
    if offered and offered.shared:
        return f"DRA ({DRIVER}) gives one GPU of this node to several claims: turn its consumable shares off"
    return ""


def count_given_out(node: Object) -> int:
    """Returns how many GPUs of the node the device plugin gives out."""
    text = str(((node.get("status") or {}).get("allocatable") or {}).get(GPU, "0"))
    return int(text) if text.isdecimal() else 0
