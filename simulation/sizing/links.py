"""The links between GPUs, as specs of GpuTypes declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solvers.pools.links import NETWORK, NVLINK, PCIE, ServerLink

NETWORK_GBIT = 200.0  # of each GPU, where nothing is declared


def join_gpu_types(
    specs: Mapping[str, Mapping[str, Any]], node_gpus: Mapping[str, int], network_gbit: float = NETWORK_GBIT
) -> list[ServerLink]:
    """Returns the links of these GPU types, the quickest kinds first; `node_gpus` are those of the largest node.

    The network has one price for all: the highest that a type declares.
    """
    nvlink, pcie = [], []
    for name, spec in sorted(specs.items()):
        largest = node_gpus.get(name, 1)
        joined = int(spec.get("nvlinkGroup") or largest) if spec.get("nvlinkGbit") else 1
        if joined > 1:
            nvlink.append(ServerLink(NVLINK, {name: spec["nvlinkGbit"]}, most_gpus=joined))
        if spec.get("pcieGbit") and largest > joined:
            pcie.append(ServerLink(PCIE, {name: spec["pcieGbit"]}, most_gpus=largest))
    speeds = {name: spec.get("networkGbit") or network_gbit for name, spec in specs.items()}
    price = max((spec.get("networkPricePerGib", 0.0) for spec in specs.values()), default=0.0)
    return [*nvlink, *pcie, ServerLink(NETWORK, speeds, price)]
