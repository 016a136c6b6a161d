"""Nodes with GPUs, from the labels of GPU feature discovery, else of clouds, else from ResourceSlices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from clusters.amounts import read_amount, read_count, read_gib
from clusters.estate import GpuNode, GpuSlots, NodePurchase, SharingMode, UnknownFigure
from clusters.objects import KubeObject, name_of, read_field, read_list, read_mapping, read_text, read_whole
from clusters.reading.slices import MIG_SLICES, SlicedGpus

NVIDIA = "nvidia.com/"
WHOLE_GPU = "nvidia.com/gpu"
# The names of what other operators offer or ask for begin with nvidia.com/ too: network cards, parts of memory.
GPU_RESOURCE = re.compile(r"nvidia\.com/(gpu|gpu\.shared|pgpu|mig-.+)")
GPU_RESOURCE_LABEL = "nvidia_com_(gpu|gpu_shared|pgpu|mig_.+)"  # the same names, as kube-state-metrics writes them
OTHER_ACCELERATORS = re.compile(
    r"amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi|google\.com/tpu|aws\.amazon\.com/neuron\w*|huawei\.com/Ascend\w+"
)
MIG = re.compile(r"mig-([0-9])g\.([0-9]+)gb.*")
MIG_PRODUCT = re.compile(r"(?P<gpu>.+)-MIG-(?P<slices>[0-9])g\.(?P<memory>[0-9]{1,6})gb.*")
PRODUCT_MEMORY = re.compile(r"(?<![0-9])([0-9]{1,6})GB\b")

REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
POOLS = (
    "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool", "agentpool",
)  # fmt: skip
CLOUD_PRODUCTS = ("cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
PURCHASES: Mapping[tuple[str, str], NodePurchase] = {
    ("karpenter.sh/capacity-type", "on-demand"): "onDemand",
    ("karpenter.sh/capacity-type", "spot"): "spot",
    ("karpenter.sh/capacity-type", "reserved"): "reserved",
    ("eks.amazonaws.com/capacityType", "ON_DEMAND"): "onDemand",
    ("eks.amazonaws.com/capacityType", "SPOT"): "spot",
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK"): "reserved",
    ("cloud.google.com/gke-spot", "true"): "spot",
    ("cloud.google.com/gke-preemptible", "true"): "spot",
    ("cloud.google.com/gke-provisioning", "spot"): "spot",
    ("cloud.google.com/gke-provisioning", "preemptible"): "spot",
    ("cloud.google.com/gke-provisioning", "standard"): "onDemand",
    ("kubernetes.azure.com/scalesetpriority", "spot"): "spot",
    ("kubernetes.azure.com/scalesetpriority", "regular"): "onDemand",
    ("node.kubernetes.io/lifecycle", "spot"): "spot",
}
CLOUDS = ("aws://", "gce://", "azure://")  # they label spot nodes; one without such a label is on demand


def read_node(node: KubeObject, sliced: SlicedGpus | None) -> tuple[GpuNode | None, list[UnknownFigure]]:
    """Returns a node with GPUs, and what stays unknown of it; None for a node without GPUs."""
    labels = {key: value for key, value in read_mapping(node, "metadata", "labels").items() if isinstance(value, str)}
    capacity = read_mapping(node, "status", "capacity")
    amounts = {key: read_count(value) for key, value in capacity.items() if GPU_RESOURCE.fullmatch(key)}
    offered = {key: count for key, count in amounts.items() if count}
    labelled = read_whole(labels, "nvidia.com/gpu.count") or 0
    if not offered and not labelled and sliced is None:
        return None, []
    product = _first(labels, ("nvidia.com/gpu.product", *CLOUD_PRODUCTS)).removesuffix("-SHARED")
    gpus, offers, source = _offers(labels, offered, labelled, product)
    memory_mib = read_whole(labels, "nvidia.com/gpu.memory")
    memory_gib = None if memory_mib is None else memory_mib / 1024
    if mig := MIG_PRODUCT.fullmatch(product):
        product, memory_gib = mig["gpu"], _product_memory(mig["gpu"])
    if not offers and sliced is not None:
        gpus, source = sliced.gpus, "its ResourceSlices"
        product, memory_gib = product or sliced.product, memory_gib or sliced.memory_gib
    found = GpuNode(
        name=name_of(node),
        gpus=gpus,
        product=product,
        memory_gib=memory_gib,
        offers=offers,
        instance_type=_first(labels, INSTANCE_TYPES),
        region=_first(labels, REGIONS),
        pool=_first(labels, POOLS),
        purchase=_purchase(labels, read_text(node, "spec", "providerID")),
        cpu_cores=_cores(read_field(node, "status", "allocatable", "cpu")),
        host_memory_gib=read_gib(read_field(node, "status", "allocatable", "memory")),
        is_ready=any(
            read_text(condition, "type") == "Ready" and read_text(condition, "status") == "True"
            for condition in read_list(node, "status", "conditions")
        ),
        is_cordoned=read_field(node, "spec", "unschedulable") is True,
        source=source,
    )
    return found, _unknown(found, amounts)


def name_accelerators(node: KubeObject) -> list[UnknownFigure]:
    """Returns a sentence if the node has other devices of NVIDIA, or accelerators of other makers: in no sum."""
    capacity = read_mapping(node, "status", "capacity")
    names = sorted(
        key
        for key, value in capacity.items()
        if read_count(value)
        and (OTHER_ACCELERATORS.fullmatch(key) or (key.startswith(NVIDIA) and not GPU_RESOURCE.fullmatch(key)))
    )
    if not names:
        return []
    reason = f"what it has of {', '.join(names)} is not assessed and in no sum"
    return [UnknownFigure(f"node {name_of(node)}", reason, "only GPUs that NVIDIA's device plugin offers are")]


def _offers(
    labels: Mapping[str, str], offered: Mapping[str, int], labelled: int, product: str
) -> tuple[int, tuple[GpuSlots, ...], str]:
    """Returns the GPUs of a node, its slots by resource, and where both are read."""
    shared = _sharing(labels)
    mig = MIG_PRODUCT.fullmatch(product)
    clients = max(1, read_whole(labels, "nvidia.com/gpu.replicas") or _cloud_clients(labels) or 1)
    if mig:  # all GPUs are cut alike, and a slice has the name of a GPU; pods may share each slice in turn
        per_gpu = _slices_per_gpu(int(mig["slices"]), int(mig["memory"]), _product_memory(mig["gpu"]))
        gpus = -(-(labelled or -(-sum(offered.values()) // clients)) // per_gpu)
        part, mode = Fraction(1, per_gpu * clients), shared if clients > 1 else "mig"
        slots = sorted((offered or {WHOLE_GPU: labelled * clients}).items())
        return gpus, tuple(GpuSlots(key, count, part, mode) for key, count in slots), "labels of GPU feature discovery"
    whole = {key: count for key, count in offered.items() if not MIG.fullmatch(key.removeprefix(NVIDIA))}
    gpus = labelled or -(-sum(whole.values()) // clients)
    offers = [GpuSlots(key, count, *_part(count, gpus, clients, shared)) for key, count in sorted(whole.items())]
    slices = []
    for key, count in sorted(offered.items()):
        if cut := MIG.fullmatch(key.removeprefix(NVIDIA)):
            clients = max(1, read_whole(labels, f"{key.removesuffix('.shared')}.replicas") or 1)
            part = Fraction(int(cut[1]), MIG_SLICES * clients)
            slices.append(GpuSlots(key, count, part, shared if clients > 1 else "mig"))
    if not labelled:
        cut_gpus = sum((slots.slots * slots.gpus_per_slot for slots in slices), Fraction(0))
        gpus += -(-cut_gpus.numerator // cut_gpus.denominator)
    return gpus, (*offers, *slices), "labels of GPU feature discovery" if labelled else "what its kubelet offers"


def _part(slots: int, gpus: int, clients: int, shared: SharingMode) -> tuple[Fraction, SharingMode]:
    """Returns the part of a GPU that a slot is; without a label, slots beyond the GPUs show that they are shared."""
    if clients > 1:
        return Fraction(1, clients), shared
    return (Fraction(gpus, slots), shared) if slots > gpus else (Fraction(1), "whole")


def _sharing(labels: Mapping[str, str]) -> SharingMode:
    strategy = labels.get("nvidia.com/gpu.sharing-strategy") or labels.get("cloud.google.com/gke-gpu-sharing-strategy")
    return "mps" if strategy == "mps" else "timeSlicing"


def _cloud_clients(labels: Mapping[str, str]) -> int | None:
    return read_whole(labels, "cloud.google.com/gke-max-shared-clients-per-gpu")


def _slices_per_gpu(slices: int, memory_gb: int, gpu_memory_gb: float | None) -> int:
    """Returns how many equal slices a GPU has: as many as its compute and its memory hold."""
    by_compute = MIG_SLICES // max(1, slices)
    by_memory = by_compute if gpu_memory_gb is None else max(1, int(gpu_memory_gb // max(1, memory_gb)))
    return max(1, min(by_compute, by_memory))


def _product_memory(product: str) -> float | None:
    match = PRODUCT_MEMORY.search(product)
    return float(match[1]) if match else None


def _purchase(labels: Mapping[str, str], provider: str) -> NodePurchase:
    for (label, value), purchase in PURCHASES.items():
        if labels.get(label) == value:
            return purchase
    return "onDemand" if provider.startswith(CLOUDS) else ""


def _cores(text: Any) -> float | None:
    amount = read_amount(text)
    return None if amount is None else float(amount)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _unknown(node: GpuNode, amounts: Mapping[str, int]) -> list[UnknownFigure]:
    subject, found = f"node {node.name}", []
    if not node.product:
        found.append(UnknownFigure(subject, "its GPU type is unknown", "run GPU feature discovery, which labels nodes"))
    if not node.offers and node.source != "its ResourceSlices":
        reason = f"its labels count {node.gpus} GPUs, and its kubelet offers none to pods"
        found.append(UnknownFigure(subject, reason, "see why the device plugin does not run there"))
    whole = [slots for slots in node.offers if slots.sharing == "whole" and 0 < slots.slots < node.gpus]
    has_slices = any(slots.sharing != "whole" for slots in node.offers)
    for slots in whole if not has_slices else ():
        reason = f"its labels count {node.gpus} GPUs, and its kubelet offers {slots.slots}"
        found.append(UnknownFigure(subject, reason, "the others may be broken: see its device plugin's log"))
    return found
