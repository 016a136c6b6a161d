"""The links of GPUs that may be rented, as GpuTypes and Nodes declare them."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.sizing.language import list_links
from simulation.sizing.links import NodeGpus, join_gpu_types
from simulation.world import read_documents
from solvers.pools.links import NETWORK, NVLINK, PCIE, ServerLink
from tests.simulation.sizing.worlds import documents


def read_links(small: dict[str, Any], big: dict[str, Any], node_gpus: int = 0, **node: int) -> list[ServerLink]:
    """Returns the links where GpuTypes `small` and `big` declare more, and a node of `small` has so many GPUs."""
    found = []
    for document in documents():
        more = {("GpuType", "small"): small, ("GpuType", "big"): big}.get(
            (document["kind"], document["metadata"]["name"]), {}
        )
        if document["kind"] != "Node":
            found.append(document | {"spec": document["spec"] | more})
    if node_gpus:
        spec = {"gpuType": "small", "gpus": node_gpus, "cpuCores": 8, "memoryGib": 64, **node}
        found.append({"apiVersion": "gpuwright/v1", "kind": "Node", "metadata": {"name": "wide"}, "spec": spec})
    return list_links(read_documents(found), 200.0)


def test_without_figures_the_network_joins_all_at_the_speed_that_is_asked_for() -> None:
    assert read_links({}, {}) == [ServerLink(NETWORK, {"small": 200.0, "big": 200.0})]


def test_nvlink_joins_its_group_and_pcie_what_else_the_node_has() -> None:
    links = read_links({"nvlinkGbit": 2400, "pcieGbit": 252, "nvlinkGroup": 4}, {"nvlinkGbit": 3600}, node_gpus=8)
    assert links[:2] == [
        ServerLink(NVLINK, {"small": 2400}, most_gpus=4),
        ServerLink(PCIE, {"small": 252}, most_gpus=8),
    ]
    assert [link.kind for link in links] == [NVLINK, PCIE, NETWORK], "how many GPUs a node of `big` has is not known"


@pytest.mark.parametrize("price", [0.0, 0.02])
def test_the_network_has_the_speed_of_each_type_and_a_price_by_those_that_send(price: float) -> None:
    link, *dearer = read_links({"networkGbit": 12.5, "networkPricePerGib": price}, {})
    speeds = {"small": 12.5, "big": 200.0}
    assert link == ServerLink(NETWORK, speeds, 0.0, senders={"big"} if price else None)
    assert dearer == ([ServerLink(NETWORK, speeds, price)] if price else [])


def test_nvlink_joins_no_more_gpus_than_a_node_has_and_no_more_than_the_node_says() -> None:
    declared = {"nvlinkGbit": 2400, "nvlinkGroup": 8}
    assert [link.most_gpus for link in read_links(declared, {}, node_gpus=4)] == [4, None]
    assert [link.most_gpus for link in read_links(declared, {}, node_gpus=8, nvlinkGroup=2)] == [2, None]
    assert [link.most_gpus for link in read_links({"nvlinkGbit": 2400}, {}, node_gpus=8, nvlinkGroup=4)] == [4, None]
    assert [link.most_gpus for link in read_links(declared, {})] == [8, None]


def test_links_of_all_nodes_of_a_cluster_join_no_more_groups_than_there_are() -> None:
    nodes = {"a": [NodeGpus(8), NodeGpus(6, 4), *20 * [NodeGpus(1)]]}
    nvlink, pcie, _ = join_gpu_types(
        {"a": {"nvlinkGbit": 2400, "pcieGbit": 252, "nvlinkGroup": 4}}, nodes, are_all_nodes=True
    )
    assert nvlink.groups == {4: 3, 2: 1, 1: 20}
    assert pcie.groups == {8: 1, 6: 1, 1: 20}
    assert [nvlink.has_room(*cells) for cells in ((3, 4), (4, 4), (7, 2), (8, 2), (1, 8))] == [
        True,
        False,
        True,
        False,
        False,
    ]
