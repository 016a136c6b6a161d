"""What limits servers that do both, and what cuts two pools: only a promise or a link that does is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.llm.iteration import TokenPromise
from solvers.pools.apart import LINK_BUSY_SHARE, ApartServers
from solvers.pools.servers import ServerGroup
from solvers.pools.size import find_cause
from tests.solvers.pools.servers import make_server
from tests.solvers.pools.test_apart import LENGTHS, SENT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "cause"),
    [
        (10_000.0, 25.0, "TPOT is tight"),
        (400.0, 1e6, "TTFT is tight"),
        (1e7, 1e6, "memory or throughput limits servers that do both, and neither promise does"),
    ],
)
def test_a_promise_is_named_only_where_servers_would_carry_more_without_it(
    ttft_ms: float, tpot_ms: float, cause: str
) -> None:
    assert find_cause(make_server("a", 0.0), LENGTHS, TokenPromise(ttft_ms, tpot_ms, 95)) == cause


def test_a_server_whose_links_are_full_is_limited_by_them() -> None:
    most = LINK_BUSY_SHARE * SENT.most_per_second(make_server("a", 0.0), LENGTHS.input_mean)
    for rate, is_cut in ((most, True), (most / 2, False)):
        server = replace(make_server("a", 0.0), rate_per_second=rate)
        pools = ApartServers([ServerGroup(server, 1, rate)], [ServerGroup(server, 1, rate)], SENT)
        assert pools.fills_link(server, LENGTHS.input_mean) is is_cut
