"""Searches for fewer or cheaper nodes, where nodes are billed whole: closes some, opens others, and refills the rest.

All GPUs of an open node are paid, so they hardly cost the loops anything; those of closed nodes cannot be used. An
exchange of open nodes that saves money is tried by refilling at rising prices of what is missing, as in a cycle of the
local search. It is kept if everything is served again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np

from solvers.planning.search.local_search import LocalSearch
from solvers.planning.search.tables import Floats
from solvers.planning.search.workshop import Workshop

NodeKind: TypeAlias = tuple[int, int, int, float, float]  # pool, GPUs, free GPUs, CPU cores, host memory
NodeCount: TypeAlias = tuple[tuple[tuple[int, int], int], ...]  # of each pool and size: how many nodes are open
Exchange: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # numbers of the kinds closed, and opened

PAID_SHARE = 0.05  # of its price costs a GPU of an open node: fewer in use leave more to spare
MOST_EXCHANGES = 20_000
PATIENCE_EXCHANGES = 40  # without gain before a search ends
DOUBT_FACTOR = 0.5  # of the hope in an exchange, after each time that it failed
SLACK_SHARE = 0.02  # of the worth of all rates: so much more slack makes an exchange far likelier to serve everything
LEARNED_SHARE = 0.3  # of that, from one exchange to the next
FIRST_FACTOR = 0.7  # times the tries of the local search's first cycle take the first tries of an exchange, and
GROWTH_FACTOR = 1.4  # times as many the next ones, each time that it failed
REPAIR_TRIES_PER_GPU = 5  # without gain, once an exchange serves nearly everything
LOST_SHARE = 0.02  # of the worth of all rates: where more is missing, an exchange has failed


@dataclass
class NodeSearch:
    """Tries exchanges of nodes, each from the best board so far, those with the most hope of saving money first."""

    shop: Workshop
    local_search: LocalSearch
    margin: float = 0.0  # the slack at which an exchange fails as often as not, as tries have shown
    failed: Counter[NodeCount] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        b, bill = self.shop.board, self.shop.nodes
        gpus_of: dict[int, list[int]] = {}
        for gpu in bill.gpus.tolist():
            gpus_of.setdefault(int(b.node[gpu]), []).append(gpu)
        self.gpus_of = gpus_of
        self.is_single = np.ones(len(b.pool), dtype=np.bool_)
        self.is_single[bill.gpus] = False
        self.base_closed = self.shop.pools.closed.copy()
        nodes = [self.shop.t.problem.nodes[name] for name in sorted(self.shop.t.problem.nodes)]
        kind_of = {
            node: (
                int(b.pool[gpus[0]]), len(gpus), int((self.base_closed[gpus] == 0).sum()), nodes[node].cpu_cores,
                nodes[node].host_memory_gib,
            )
            for node, gpus in gpus_of.items()
        }  # fmt: skip
        self.kinds = sorted(set(kind_of.values()))
        self.kind_of = {node: self.kinds.index(kind) for node, kind in kind_of.items()}
        self.price = np.array([bill.price[next(n for n, k in kind_of.items() if k == kind)] for kind in self.kinds])

    def rounds(self, rate: Floats, extra: Floats) -> Generator[bool]:
        """Searches at these prices; yields whether the board is cheaper than any before."""
        shop = self.shop
        best, least, opened = shop.kept_board(), shop.bill, self._in_use()
        vain = 0
        self._count_gpus(PAID_SHARE)
        try:
            while vain < PATIENCE_EXCHANGES:
                exchange = self._most_hopeful(rate, extra, opened)
                if exchange is None:
                    break
                changed = self._make(exchange, opened)
                yield from self._refill(rate, extra, self.failed[self._sizes(self._count(changed))])
                is_better = shop.bill < least - 1e-9
                self._learn(rate, extra, changed, is_better=is_better)
                vain += 1
                if is_better:
                    yield True
                    best, least, opened, vain = shop.kept_board(), shop.bill, self._in_use(), 0
                else:
                    shop.bring_back(best)
        finally:
            self._count_gpus(1.0)
            shop.pools.closed[:] = self.base_closed
            shop.bring_back(best)

    def _count_gpus(self, share: float) -> None:
        """Has the loops count this share of their prices for GPUs of nodes billed whole."""
        pools, bill = self.shop.pools, self.shop.nodes
        whole = np.array([pool.price_per_hour for pool in self.shop.t.pools])[bill.pools]
        pools.price[bill.pools] += share * whole - bill.gpu_price[bill.pools]
        bill.gpu_price[bill.pools] = share * whole

    # Which exchange

    def _in_use(self) -> list[int]:
        """Returns the nodes in use."""
        b = self.shop.board
        return sorted({int(b.node[gpu]) for gpu in self.shop.nodes.gpus if b.count[gpu] > 0})

    def _count(self, nodes: list[int]) -> tuple[int, ...]:
        """Returns how many nodes of each kind these are."""
        found = Counter(self.kind_of[node] for node in nodes)
        return tuple(found[kind] for kind in range(len(self.kinds)))

    def _sizes(self, opened: tuple[int, ...]) -> NodeCount:
        found: Counter[tuple[int, int]] = Counter()
        for count, kind in zip(opened, self.kinds, strict=True):
            found[kind[:2]] += count
        return tuple(sorted(found.items()))

    def _worth(self, extra: Floats) -> Floats:
        """Returns what a GPU of each pool is worth at the prices."""
        return np.array([pool.price_per_hour for pool in self.shop.t.pools]) + extra

    def _of_kinds(self, extra: Floats) -> Floats:
        """Returns what a node of each kind is worth."""
        worth = self._worth(extra)
        return np.array([kind[2] * worth[kind[0]] for kind in self.kinds])

    def _slack(self, rate: Floats, extra: Floats, opened: tuple[int, ...]) -> float:
        """Returns what the GPUs of these nodes are worth beyond what is asked of them.

        GPUs that are billed by themselves can be opened as needed; those in use count.
        """
        shop = self.shop
        used = shop.used
        others = shop.board.pool[used[self.is_single[used]]]
        single = float(self._worth(extra)[others].sum())
        return float(np.array(opened) @ self._of_kinds(extra)) + single - float((rate * shop.t.rate).sum())

    def _most_hopeful(self, rate: Floats, extra: Floats, nodes: list[int]) -> Exchange | None:
        """Returns the exchange that saves most for its chance to serve everything; None if none saves anything."""
        opened = self._count(nodes)
        now, scale = self._slack(rate, extra, opened), SLACK_SHARE * float((rate * self.shop.t.rate).sum())
        worth, best, most = self._of_kinds(extra), None, 0.0
        for closing, opening in self._exchanges(opened):
            saved = self.price[list(closing)].sum() - self.price[list(opening)].sum()
            if saved <= 1e-9:
                continue
            slack = now - worth[list(closing)].sum() + worth[list(opening)].sum()
            chance = 1.0 / (1.0 + np.exp(np.clip((self.margin - slack) / scale, -50.0, 50.0)))
            hope = saved * chance * DOUBT_FACTOR ** self.failed[self._sizes(_after(opened, closing, opening))]
            if hope > most:
                best, most = (closing, opening), hope
        return best

    def _exchanges(self, opened: tuple[int, ...]) -> Iterator[Exchange]:
        """Yields what may be closed, one or two nodes, and opened, one or none."""
        shut = Counter(self.kind_of.values())
        free = [kind for kind in range(len(self.kinds)) if shut[kind] > opened[kind]]
        used = [kind for kind in range(len(self.kinds)) if opened[kind] > 0]
        pairs = [pair for pair in combinations_with_replacement(used, 2) if pair[0] != pair[1] or opened[pair[0]] > 1]
        count = 0
        for closing in [*((kind,) for kind in used), *pairs]:
            sizes = {self.kinds[kind][:2] for kind in closing}
            for opening in [(), *((kind,) for kind in free if self.kinds[kind][:2] not in sizes)]:
                count += 1
                if count > MOST_EXCHANGES:
                    return
                yield closing, opening

    def _make(self, exchange: Exchange, nodes: list[int]) -> list[int]:
        """Closes the nodes of these kinds that carry least, and opens others; returns those that are open."""
        shop, b = self.shop, self.shop.board
        opened = list(nodes)
        for kind in exchange[0]:
            of_kind = [node for node in opened if self.kind_of[node] == kind]
            node = min(of_kind, key=lambda node: (int((b.count[self.gpus_of[node]] > 0).sum()), node))
            opened.remove(node)
            for gpu in self.gpus_of[node]:
                shop.empty(gpu)
        for kind in exchange[1]:
            opened.append(next(n for n in self.gpus_of if n not in nodes + opened and self.kind_of[n] == kind))
        shop.pools.closed[shop.nodes.gpus] = 1
        for node in opened:
            shop.pools.closed[self.gpus_of[node]] = self.base_closed[self.gpus_of[node]]
        shop.restack()
        return opened

    def _refill(self, rate: Floats, extra: Floats, failed: int) -> Iterator[bool]:
        """Serves everything again on the nodes that are open, if the search finds how; longer after failures."""
        shop = self.shop
        shop.fill(rate, shop.need)
        shop.restack()
        for _ in self.local_search.spread(rate, extra, FIRST_FACTOR * GROWTH_FACTOR**failed):
            yield False
        shop.fill(rate, shop.need)
        shop.restack()
        if float(rate @ shop.need) <= LOST_SHARE * float(rate @ shop.t.rate):
            for _ in self.local_search.repair(rate, extra, REPAIR_TRIES_PER_GPU):
                yield False

    def _learn(self, rate: Floats, extra: Floats, opened: list[int], *, is_better: bool) -> None:
        """Moves the margin towards where exchanges fail as often as not."""
        kinds = self._count(opened)
        slack, scale = self._slack(rate, extra, kinds), SLACK_SHARE * float((rate * self.shop.t.rate).sum())
        if is_better:
            self.margin = min(self.margin, slack + scale)
            self.failed.clear()
        else:
            self.failed[self._sizes(kinds)] += 1
            self.margin += LEARNED_SHARE * scale if slack > self.margin - scale else 0.0


def _after(opened: tuple[int, ...], closing: tuple[int, ...], opening: tuple[int, ...]) -> tuple[int, ...]:
    found = list(opened)
    for kind in closing:
        found[kind] -= 1
    for kind in opening:
        found[kind] += 1
    return tuple(found)
