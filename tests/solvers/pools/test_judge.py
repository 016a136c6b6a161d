"""The judge of two pools: each rule is broken alone; and the cells that are chosen cost the least of all cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import pytest

from solvers.pools.apart import ApartPlanner, ApartServers, RatedPools
from solvers.pools.cover import PoolLimits
from solvers.pools.judge import ApartTerms, list_violations
from solvers.pools.links import NETWORK, NVLINK, ServerLink, price_keys
from solvers.pools.servers import RatedServer, ServerGroup
from tests.solvers.pools.servers import KV_BYTES, LIMITS, SMALL, make_server

RATE, TOKENS = 6.0, 500.0
TERMS = ApartTerms(RATE, TOKENS, 8000, KV_BYTES, {"a": 1.0, "b": 2.0}, {"a": 64, "b": 64})
LINK = ServerLink(NETWORK, {"a": 100.0, "b": 100.0}, 0.01)
SENT = price_keys(LINK, KV_BYTES, RATE * TOKENS)
PREFILL, DECODE = make_server("a", 3.0), make_server("b", 6.0, SMALL, degree=4, price=2.0)
RIGHT = ApartServers([ServerGroup(PREFILL, 2, RATE)], [ServerGroup(DECODE, 1, RATE)], SENT)


def judge(servers: ApartServers = RIGHT, terms: ApartTerms = TERMS) -> list[str]:
    return list_violations(servers, terms)


def with_prefill(server: RatedServer, count: int = 2, rate: float = RATE) -> ApartServers:
    return replace(RIGHT, prefill=[ServerGroup(server, count, rate)])


def test_what_keeps_all_rules_has_no_violation() -> None:
    assert judge() == []


def test_each_broken_rule_is_named() -> None:
    small = replace(PREFILL, limits=replace(LIMITS, kv_tokens=7000))
    slow = price_keys(replace(LINK, gbit_per_second={"a": 0.1, "b": 100.0}), KV_BYTES, RATE * TOKENS)
    cells = price_keys(ServerLink(NVLINK, {"a": 100.0, "b": 100.0}, most_gpus=8), KV_BYTES, RATE * TOKENS)
    broken = {
        "prefill is planned for 5 requests/s of 6": judge(with_prefill(PREFILL, rate=5.0)),
        "a prefill server of 8 a gets 4 requests/s and carries 3": judge(with_prefill(PREFILL, rate=8.0)),
        "a prefill server of 8 a holds 7000 tokens, fewer than a context of 8000": judge(with_prefill(small)),
        "16 a are used; 8 may be rented": judge(terms=replace(TERMS, most_gpus={"a": 8, "b": 64})),
        "decode has 1 servers; at least 2 are asked for": judge(terms=replace(TERMS, fewest=2)),
        "a prefill server of 8 a sends or gets 4.9152e+08 bytes/s over links of 1e+08": judge(
            replace(RIGHT, sent=slow)
        ),
        "nvlink joins GPUs of one type, and the pools have a and b": judge(replace(RIGHT, sent=cells)),
        "20 GPUs in 1 cells are more than the 8 that a link joins in each": judge(replace(RIGHT, sent=cells)),
        "a does not send at 0.01 per GiB": judge(replace(RIGHT, sent=replace(SENT, link=replace(LINK, senders={"b"})))),
        "no room for 8 GPUs is left in a node of a": judge(
            terms=replace(TERMS, nodes={"a": {8: 1, 4: 9}, "b": {4: 1}})
        ),
        "no room for 4 GPUs is left in a node of b": judge(terms=replace(TERMS, nodes={"a": {16: 1}, "b": {2: 9}})),
        "no room for 20 GPUs is left in a network group": judge(
            replace(RIGHT, sent=replace(SENT, link=replace(LINK, most_gpus=20, groups={8: 9})))
        ),
    }
    assert judge(terms=replace(TERMS, nodes={"a": {8: 2}, "b": {4: 1}})) == []
    for sentence, found in broken.items():
        assert sentence in found


def test_a_wrong_bill_is_named() -> None:
    (sentence,) = judge(terms=replace(TERMS, price_per_hour={"a": 1.5, "b": 2.0}))
    assert sentence.startswith("the pools cost ")
    assert judge(replace(RIGHT, sent=replace(SENT, price_per_hour=0.0))) != []


@pytest.mark.parametrize("rate", [0.7, 5.0, 23.0])
@pytest.mark.parametrize("fewest", [1, 4])
@pytest.mark.parametrize("most", [200, 40])
def test_cells_cost_the_least_of_all_that_a_link_joins(rate: float, fewest: int, most: int) -> None:
    prefill = [make_server("a", 3.0, degree=2), make_server("a", 1.4, degree=1), make_server("b", 9.0, degree=4)]
    decode = [make_server("a", 2.2, degree=1), make_server("a", 5.0, degree=2), make_server("b", 7.0, degree=2)]
    link = ServerLink(NVLINK, {"a": 1000.0, "b": 1000.0}, most_gpus=8)
    planner = ApartPlanner([RatedPools(prefill, decode)], price_keys(link, KV_BYTES, rate * TOKENS))

    def costs() -> Iterator[float]:
        for first in prefill:
            for second in decode:
                for n, m in ((n, m) for n in range(1, 9) for m in range(1, 9)):
                    gpus = n * first.degree + m * second.degree
                    if first.gpu_type != second.gpu_type or gpus > 8:
                        continue
                    cells = max(
                        ceil(rate / (n * first.rate_per_second)), ceil(rate / (m * second.rate_per_second)),
                        ceil(fewest / n), ceil(fewest / m),
                    )  # fmt: skip
                    if cells * gpus <= most:
                        yield cells * gpus * 1.0

    limits = PoolLimits({"a": most, "b": most}, fewest)
    found, least = planner.find_servers(rate, limits), min(costs(), default=None)
    if found is None:
        assert least is None
        return
    assert found.cost_per_hour == pytest.approx(least)
    terms = ApartTerms(rate, TOKENS, 8000, KV_BYTES, {"a": 1.0, "b": 1.0}, {"a": most, "b": most}, fewest)
    assert judge(found, terms) == []
