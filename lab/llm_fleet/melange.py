"""Plans as Melange does (Griggs et al., "Melange: Cost Efficient Large Language Model Serving", 2024).

Requests are divided into buckets by input and output length, each bucket's rate into equal slices. A slice fills a
share of a server that its size and the server's kind determine; an integer programme assigns slices and counts servers.
Melange counts GPUs of each type; here it counts servers of each GPU type and parallel degree. A server's throughput
for a bucket is the largest rate of requests of that size alone that keeps the promise, found as ours is. It may be
granted what no load balancer knows, the length of an answer: then each request goes to the kind of server that its
bucket was assigned to. Otherwise requests go to servers at random, by the rates that these carry of the whole mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from lab.llm_fleet.servers import WeightedRequests
from lab.llm_fleet.trace import TracedRequests
from solvers.planning.fleet.token_shapes import carries
from solvers.planning.language import TokenLengths, TokenPromise
from solvers.pools.servers import RatedServer, ServerGroup

INPUT_EDGES = (256, 1024, 2048, 4096)  # tokens; a bucket has lengths up to its edge
OUTPUT_EDGES = (64, 256, 512)
SLICES = 8  # of each bucket, as in Melange's evaluation
MOST_SECONDS = 10.0
RELATIVE_GAP = 1e-4

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LengthBuckets:
    """The bucket of each request of a trace, each bucket's share of them, and its mean lengths."""

    bucket: NDArray[np.int64]
    shares: Floats
    lengths: Sequence[TokenLengths]


@dataclass(frozen=True, eq=False)
class MelangePlanner:
    """The servers to choose from, the best of each GPU type and degree, and what each carries of each bucket."""

    servers: Sequence[RatedServer]
    buckets: LengthBuckets
    throughputs: Floats  # requests a second: bucket x server; 0 where the promise does not hold
    trace: TracedRequests

    def groups(self, rate_per_second: float) -> list[ServerGroup] | None:
        """Returns the servers for this rate; None where no server carries some bucket."""
        if not self.servers or (self.throughputs.max(axis=1) <= 0).any():
            return None
        slices, counts = self._solved(rate_per_second)
        found = []
        for place, server in enumerate(self.servers):
            part = slices[:, place] / SLICES
            if counts[place]:
                rate = rate_per_second * float(part @ self.buckets.shares)
                own = WeightedRequests(self.trace, part[self.buckets.bucket])
                found.append(ServerGroup(server, int(counts[place]), rate, own))
        return [group for group in found if group.rate_per_second > 0]

    def blind_groups(self, rate_per_second: float) -> list[ServerGroup] | None:
        """Returns the same servers; each gets requests of all lengths."""
        groups = self.groups(rate_per_second)
        if groups is None:
            return None
        carried = sum(group.count * group.server.rate_per_second for group in groups)
        return [
            ServerGroup(each.server, each.count, rate_per_second * each.count * each.server.rate_per_second / carried)
            for each in groups
        ]

    def _solved(self, rate_per_second: float) -> tuple[Floats, Floats]:
        """Returns the slices of each bucket for each kind of server, and the servers of each kind."""
        buckets, kinds = self.throughputs.shape
        per_slice = rate_per_second * self.buckets.shares / SLICES
        load = np.divide(
            per_slice[:, None], self.throughputs, out=np.zeros_like(self.throughputs), where=self.throughputs > 0
        )
        variables = buckets * kinds + kinds  # slices, a row a bucket; then servers
        assigned, filled = np.zeros((buckets, variables)), np.zeros((kinds, variables))
        for bucket in range(buckets):
            assigned[bucket, bucket * kinds : (bucket + 1) * kinds] = 1
            for kind in range(kinds):
                filled[kind, bucket * kinds + kind] = load[bucket, kind]
        filled[:, buckets * kinds :] = -np.eye(kinds)
        most = np.where(self.throughputs > 0, SLICES, 0).ravel()
        costs = np.array([server.cost_per_hour for server in self.servers])
        result = milp(
            np.concatenate([np.zeros(buckets * kinds), costs]),
            integrality=np.ones(variables),
            bounds=Bounds(0, np.concatenate([most, np.full(kinds, ceil(load.sum() * SLICES) + 1)])),
            constraints=[LinearConstraint(assigned, lb=SLICES, ub=SLICES), LinearConstraint(filled, ub=0)],
            options={"time_limit": MOST_SECONDS, "mip_rel_gap": RELATIVE_GAP},
        )
        assert result.x is not None, result.message
        whole = np.rint(result.x)
        return whole[: buckets * kinds].reshape(buckets, kinds), whole[buckets * kinds :]


def melange(
    servers: Sequence[RatedServer], trace: TracedRequests, promise: TokenPromise, context_tokens: int
) -> MelangePlanner:
    """Returns the planner with its table of throughputs."""
    best: dict[tuple[str, int], RatedServer] = {}
    for server in servers:
        known = best.get((server.gpu_type, server.degree))
        if known is None or server.rate_per_second > known.rate_per_second:
            best[server.gpu_type, server.degree] = server
    buckets = divided(trace, context_tokens)
    kinds = list(best.values())
    table = [
        [carries(kind.cost, kind.limits, lengths, promise).rate_per_second for kind in kinds]
        for lengths in buckets.lengths
    ]
    return MelangePlanner(kinds, buckets, np.array(table).reshape(len(buckets.lengths), len(kinds)), trace)


def divided(trace: TracedRequests, context_tokens: int) -> LengthBuckets:
    """Returns the buckets that have any request."""
    rows = np.searchsorted(INPUT_EDGES, trace.inputs)
    columns = np.searchsorted(OUTPUT_EDGES, trace.outputs)
    used, bucket = np.unique(rows * (len(OUTPUT_EDGES) + 1) + columns, return_inverse=True)
    lengths = []
    for number in range(len(used)):
        inputs, outputs = (float(each[bucket == number].mean()) for each in (trace.inputs, trace.outputs))
        lengths.append(TokenLengths(inputs, inputs, outputs, outputs, context_tokens=context_tokens))
    return LengthBuckets(bucket, np.bincount(bucket) / len(bucket), lengths)
