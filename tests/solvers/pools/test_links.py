"""The order in which links send keys and values, against one event after the other; and what sending costs."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.pools.links import NETWORK, ServerLink, price_keys, send_keys, split_by_server
from tests.solvers.pools.servers import KV_BYTES, make_server


def test_links_send_one_prompt_after_the_other_and_receive_while_they_send() -> None:
    ready = np.array([0.0, 1.0, 2.0, 100.0])
    sender, receiver = np.array([0, 0, 1, 0]), np.array([0, 0, 0, 1])
    there = send_keys(ready, (sender, np.array([10.0, 10.0, 10.0, 10.0])), (receiver, np.array([4.0, 4.0, 40.0, 4.0])))
    # The second waits for the first at its sender; the third is received after the first, and before the second.
    assert there == pytest.approx([10.0, 48.0, 44.0, 110.0])


@pytest.mark.parametrize("seed", range(3))
def test_waits_are_those_of_links_that_are_followed_one_request_after_the_other(seed: int) -> None:
    draw = np.random.default_rng(seed)
    ready, sizes = np.sort(draw.exponential(1.0, 200).cumsum()), draw.exponential(1.2, 200)
    sender, receiver = draw.integers(0, 3, 200), draw.integers(0, 2, 200)
    begins, ends = np.zeros(200), np.zeros(200)
    free = {0: 0.0, 1: 0.0, 2: 0.0}
    for at in range(200):
        begins[at] = max(ready[at], free[int(sender[at])])
        ends[at] = free[int(sender[at])] = begins[at] + sizes[at]
    got = {0: 0.0, 1: 0.0}
    for at in np.argsort(begins, kind="stable"):
        got[int(receiver[at])] = max(begins[at], got[int(receiver[at])]) + sizes[at] / 2
        ends[at] = max(ends[at], got[int(receiver[at])])
    assert send_keys(ready, (sender, sizes), (receiver, sizes / 2)) == pytest.approx(ends)


def test_a_prompt_occupies_all_links_of_a_server_and_costs_by_the_gib() -> None:
    sent = price_keys(ServerLink(NETWORK, {"a": 100.0}, 0.01), KV_BYTES, 5000.0)
    server = make_server("a", 1.0, degree=4)
    assert sent.milliseconds_per_token(server) == pytest.approx(KV_BYTES / (4 * 12.5e6))
    assert sent.most_per_second(server, 1000.0) == pytest.approx(4 * 12.5e9 / (1000 * KV_BYTES))
    assert sent.price_per_hour == pytest.approx(0.01 * 5000 * KV_BYTES * 3600 / 1024**3)


def test_each_request_is_at_its_server_alone_and_in_the_order_of_time() -> None:
    draw = np.random.default_rng(1)
    times, server_of = draw.integers(0, 20, 300).astype(float), draw.integers(0, 30, 300) * 2
    parts = split_by_server(times, server_of)
    assert [part.tolist() for part in parts] == [
        sorted(np.flatnonzero(server_of == server), key=lambda at: times[at]) for server in np.unique(server_of)
    ]
    assert split_by_server(times[:0], server_of[:0]) == []
