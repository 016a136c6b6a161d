"""The GPUs that language models are advised on: what is paid for them on average, and the nodes that they are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from clusters.certified.language import find_market
from clusters.certified.posing import KnownProfiles
from solvers.planning.problem import GpuType
from solvers.pools.links import ServerLink
from tests.clusters.made_up import node
from tests.clusters.savings.fleets import assessed

PRICES = (
    "prices: [{instanceType: spot, perHour: 0.5}, {instanceType: one, perHour: 3.0}, {instanceType: wide, perHour: 20}]"
)
KNOWN = KnownProfiles({"l40s": GpuType("l40s", 48.0, 40.0, 350.0, (2500.0,))}, {}, (), {"NVIDIA-L40S": "l40s"})


def test_a_cheap_node_prices_only_its_own_gpus_and_a_large_one_makes_no_others_large() -> None:
    kinds = ["spot", *20 * ["one"]]
    items = [node(f"n{at}", 1, "NVIDIA-L40S", kind) for at, kind in enumerate(kinds)]
    items.append(node("wide", 8, "NVIDIA-L40S", "wide"))
    estate, bill = assessed(items, PRICES)
    joined: list[Mapping[str, Counter[int]]] = []

    def join_gpus(nodes: Mapping[str, Counter[int]]) -> list[ServerLink]:
        joined.append(nodes)
        return []

    market = find_market(estate, bill, KNOWN, join_gpus)
    assert market.most_gpus == {"l40s": 29}
    assert market.price_per_hour == {"l40s": pytest.approx((0.5 + 20 * 3.0 + 20.0) / 29)}
    assert market.nodes == {"l40s": {1: 21, 8: 1}}
    assert joined == [market.nodes], "links join the GPUs of these nodes"
