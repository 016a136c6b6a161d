"""The prices of nodes that are billed whole, beside what the compiled loops count for each of their GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.search.arrays import Board
from solvers.planning.search.tables import Pool, Tables


@dataclass(frozen=True)
class NodeBill:
    """The nodes that are billed whole; a board numbers nodes by name, and pools hold whole nodes."""

    pools: Ints  # that hold such nodes
    gpus: Ints  # of the board, on such nodes
    price: Floats  # of each node of the board: of all its GPUs, 0 where it is not billed whole
    gpu_price: Floats  # of each pool: what the loops count for one of its GPUs, 0 where these are billed by themselves

    def beyond(self, board: Board) -> float:
        """Returns what the nodes in use cost beyond what the loops count for their GPUs."""
        if not len(self.gpus):
            return 0.0
        used = self.gpus[board.count[self.gpus] > 0]
        counted = float(self.gpu_price[board.pool[used]].sum())
        return float(self.price[np.unique(board.node[used])].sum()) - counted


def node_bill(t: Tables, board: Board) -> NodeBill:
    """Returns the bill of a fleet, where the loops count for each GPU its even share of its node's price."""
    pools = np.array([place for place, pool in enumerate(t.pools) if pool.node_sizes], dtype=np.int64)
    nodes = [t.problem.nodes[name] for name in sorted(t.problem.nodes)]
    policy = t.problem.policy
    price = [whole_price(node) * policy.money_weight if is_billed_whole(node, policy) else 0.0 for node in nodes]
    of_gpus = np.array([pool.price_per_hour if pool.node_sizes else 0.0 for pool in t.pools])
    return NodeBill(pools, np.flatnonzero(np.isin(board.pool, pools)), np.array(price), of_gpus)


def gpus_paid(pool: Pool) -> Ints:
    """Returns how many GPUs of a pool may be paid, rising: any number, or those of some nodes billed whole."""
    if not pool.node_sizes:
        return np.arange(len(pool.gpus) + 1)
    sums = 1
    for size in pool.node_sizes:
        sums |= sums << size
    return np.array([count for count in range(len(pool.gpus) + 1) if sums >> count & 1], dtype=np.int64)
