"""Claims of GPUs that are given out by DRA: one for each GPU of the node, which its holder and its copies share.

A claim names its GPU by UUID. It is freed when the last pod leaves it, which is why a holder stays in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi, Object
from agents.kubernetes.following import Follower
from agents.kubernetes.names import DRIVER, NODE, UUID, name_claim

VERSION, OLDER = "v1", ("v1beta2", "v1beta1")  # of DRA's API; claims are written in the first alone
FIRST_LIST_SECONDS = 5.0
_GONE, _EXISTS = 404, 409


class OfferedGpus(msgspec.Struct, frozen=True):
    """What NVIDIA's driver of DRA offers of a node."""

    gpus: frozenset[str]  # UUIDs
    shared: bool  # a GPU may have several claims, so that others may have it beside us
    outdated: bool = False  # the cluster has only older versions of DRA's API


class GpuClaims:
    """The claims of one node's GPUs."""

    def __init__(self, api: KubernetesApi, node: str) -> None:
        self._api = api
        self._node = node
        self._path = _path_of(api)
        self._claims = Follower(api, self._path, {"labelSelector": f"{NODE}={node}"})
        self._claims.start()

    def make(self, gpus: Collection[str], node: Object) -> Mapping[str, str]:
        """Makes the claims that are missing, and returns those of which none is being deleted.

        `node` owns them, as Kubernetes has it.
        """
        self._claims.wait(lambda _: True, FIRST_LIST_SECONDS)
        there = self._claims.objects()
        claims = {gpu: name_claim(self._node, gpu) for gpu in gpus}
        for gpu, name in claims.items():
            if name in there:
                continue
            try:
                self._api.create(self._path, write_claim(self._node, gpu, node))
            except ApiRefused as refused:
                if refused.status != _EXISTS:
                    raise ApiAway(f"the claim of GPU {gpu} is not made: {refused}") from refused
        return {gpu: name for gpu, name in claims.items() if not _is_leaving(there.get(name) or {})}

    def find_allocated(self, gpus: Collection[str]) -> Collection[str]:
        """Returns the GPUs that belong to our pods alone, as the scheduler has written into their claims."""
        there = self._claims.objects()
        return {gpu for gpu in gpus if _is_allocated(there.get(name_claim(self._node, gpu)) or {})}

    def close(self) -> None:
        self._claims.close()


def write_claim(node: str, gpu: str, owner: Object) -> Object:
    """Returns the claim of one GPU, which is deleted with its node."""
    wanted = f"device.attributes[{_quote(DRIVER)}].uuid == {_quote(gpu)}"
    exactly = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": wanted}}],
    }
    uid = (owner.get("metadata") or {}).get("uid")
    owners = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}] if uid else []
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name_claim(node, gpu),
            "labels": {NODE: node},
            "annotations": {UUID: gpu},
            "ownerReferences": owners,
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def read_offered(api: KubernetesApi, node: str) -> OfferedGpus | None:
    """Returns the GPUs of the node that DRA gives out; None where it gives out none."""
    version, found = _read_slices(api, node)
    ours = [spec for one in found if (spec := one.get("spec") or {}).get("driver") == DRIVER]
    devices = [device for spec in _list_newest(ours) for device in spec.get("devices") or ()]
    gpus = {uuid: device for device in devices if (uuid := _read_uuid(device))}
    shared = any(device.get("allowMultipleAllocations") for device in gpus.values())
    return OfferedGpus(frozenset(gpus), shared, version != VERSION) if ours else None


def _read_slices(api: KubernetesApi, node: str) -> tuple[str, Collection[Object]]:
    """Returns the newest version of DRA's API that the cluster has, and the node's slices; none without DRA."""
    for version in (VERSION, *OLDER):
        try:
            path = f"/apis/resource.k8s.io/{version}/resourceslices"
            return version, api.get(path, fieldSelector=f"spec.nodeName={node}").get("items") or ()
        except ApiRefused as refused:
            if refused.status != _GONE:
                raise ApiAway(str(refused)) from refused
    return VERSION, ()


def read_claimed(api: KubernetesApi, node: str) -> OfferedGpus | None:
    """Returns the GPUs of the node that our claims have; None where they have none."""
    try:
        found = api.get(_path_of(api), labelSelector=f"{NODE}={node}").get("items") or ()
    except ApiRefused as refused:
        if refused.status == _GONE:
            return None
        raise ApiAway(str(refused)) from refused
    notes = [(claim["metadata"].get("annotations") or {}) for claim in found if _is_allocated(claim)]
    gpus = frozenset(str(each[UUID]) for each in notes if UUID in each)
    return OfferedGpus(gpus, shared=False) if gpus else None


def _path_of(api: KubernetesApi) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{api.namespace}/resourceclaims"


def _list_newest(slices: Collection[Object]) -> Iterator[Object]:
    """Yields the slices of each pool's newest generation: a driver that replaces them leaves older ones for a while."""
    newest: dict[str, int] = {}
    for spec in slices:
        name, generation = _read_pool(spec)
        newest[name] = max(generation, newest.get(name, 0))
    for spec in slices:
        name, generation = _read_pool(spec)
        if generation == newest[name]:
            yield spec


def _read_pool(spec: Object) -> tuple[str, int]:
    pool: Mapping[str, object] = spec.get("pool") or {}
    generation = pool.get("generation")
    return str(pool.get("name", "")), generation if isinstance(generation, int) else 0


def _read_uuid(device: Object) -> str:
    """Returns the UUID of a whole GPU; empty for a part of one, such as MIG's."""
    attributes = device.get("attributes") or {}

    def read(name: str) -> str:
        found = attributes.get(name) or attributes.get(f"{DRIVER}/{name}") or {}
        return str(found.get("string", ""))

    return read("uuid") if read("type") in ("gpu", "") else ""


def _is_allocated(claim: Object) -> bool:
    """Returns whether the claim has its GPU, and goes on to have it."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return bool(allocation) and not _is_leaving(claim)


def _is_leaving(claim: Object) -> bool:
    """Returns whether somebody has deleted the claim, which stays until the last pod leaves it."""
    return "deletionTimestamp" in (claim.get("metadata") or {})


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()
