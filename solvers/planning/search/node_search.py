"""Searches for fewer or cheaper nodes, where nodes are billed whole: closes some, opens others, and refills the rest.

All GPUs of an open node are paid, so they hardly cost the loops anything; those of closed nodes cannot be used. An
exchange of open nodes that saves money is tried by refilling at rising prices of what is missing, as in a cycle of the
local search. It is kept if everything is served again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice
from typing import TypeAlias

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.local_search import LocalSearch
from solvers.planning.search.workshop import Workshop

NodeKind: TypeAlias = tuple[int, int, int]  # pool, GPUs, and those of them that services may use
Exchange: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # numbers of the kinds closed, and opened

PAID_SHARE = 0.05  # of its price costs a GPU of an open node: fewer in use leave more to spare
MOST_EXCHANGES = 20_000
PATIENCE_EXCHANGES = 40  # without gain before a search ends
DOUBT_FACTOR = 0.5  # of the hope in an exchange, after each time that it failed
SLACK_SHARE = 0.02  # of the worth of all rates, and at most
SLACK_NODES = 0.5  # of a usual node's price: so much more slack makes an exchange far likelier to serve everything
LEARNED_SHARE = 0.3  # of that, more slack is asked for after an exchange has failed, and
CAUTION_FACTOR = 1.15  # times as much after each further one: a large fleet has dear exchanges by the hundred
FIRST_FACTOR = 0.7  # times the tries of the local search's first cycle take the first tries of an exchange, and
GROWTH_FACTOR = 1.4  # times as many the next ones, each time that it failed
REPAIR_TRIES_PER_GPU = 5  # without gain, once an exchange serves nearly everything


@dataclass(frozen=True)
class Exchanges:
    """What may be closed and opened of the nodes that are open, as far as it saves money."""

    opened: tuple[int, ...]  # nodes
    each: tuple[Exchange, ...]
    saved: Floats  # money
    slack: Floats  # what the GPUs are worth then beyond what is asked of them, at the prices
    failed: Ints  # how often


class NodeSearch:
    """Tries exchanges of nodes, each from the best board so far, those with the most hope of saving money first."""

    def __init__(self, shop: Workshop, local_search: LocalSearch) -> None:
        self.shop, self.local_search = shop, local_search
        self.margin = 0.0  # the slack at which an exchange fails as often as not, as tries have shown
        b, bill = shop.board, shop.nodes
        self.gpus_of: dict[int, list[int]] = {}
        for gpu in bill.gpus.tolist():
            self.gpus_of.setdefault(int(b.node[gpu]), []).append(gpu)
        self.is_single = np.ones(len(b.pool), dtype=np.bool_)
        self.is_single[bill.gpus] = False
        self.closed_before = shop.pools.closed.copy()
        kinds = {node: self._kind(gpus) for node, gpus in self.gpus_of.items()}
        self.kinds = sorted(set(kinds.values()))
        self.kind_of = {node: self.kinds.index(kind) for node, kind in kinds.items()}
        self.price = np.array([shop.t.pools[pool].price_per_hour * gpus for pool, gpus, _ in self.kinds])

    def _kind(self, gpus: list[int]) -> NodeKind:
        return int(self.shop.board.pool[gpus[0]]), len(gpus), int((self.closed_before[gpus] == 0).sum())

    def rounds(self, rate: Floats, extra: Floats) -> Generator[bool]:
        """Searches at these prices; yields whether the board is cheaper than any before."""
        shop = self.shop
        best, least, vain = shop.kept_board(), shop.bill, 0
        exchanges = self._exchanges(rate, extra)
        scale = min(SLACK_SHARE * float(rate @ shop.t.rate), SLACK_NODES * float(np.median(self.price)))
        self._count_gpus(PAID_SHARE)
        try:
            while vain < PATIENCE_EXCHANGES:
                chosen = self._most_hopeful(exchanges, scale)
                if chosen is None:
                    break
                self._make(exchanges.opened, exchanges.each[chosen])
                yield from self._refill(rate, extra, scale, int(exchanges.failed[chosen]))
                slack, vain = float(exchanges.slack[chosen]), vain + 1
                if shop.bill < least - 1e-9:
                    yield True  # who takes the board may find that it serves less
                if shop.bill < least - 1e-9:
                    best, least, vain = shop.kept_board(), shop.bill, 0
                    exchanges = self._exchanges(rate, extra)
                    self.margin = min(self.margin, slack + scale)
                else:
                    shop.bring_back(best)
                    exchanges.failed[chosen] += 1
                    more = LEARNED_SHARE * scale * CAUTION_FACTOR**vain
                    self.margin += more if slack > self.margin - scale else 0.0
        finally:
            self._count_gpus(1.0)
            shop.pools.closed[:] = self.closed_before
            shop.bring_back(best)

    def _count_gpus(self, share: float) -> None:
        """Has the loops count this share of their prices for GPUs of nodes billed whole."""
        pools, bill = self.shop.pools, self.shop.nodes
        whole = np.array([pool.price_per_hour for pool in self.shop.t.pools])[bill.pools]
        pools.price[bill.pools] += share * whole - bill.gpu_price[bill.pools]
        bill.gpu_price[bill.pools] = share * whole

    # Which exchange

    def _exchanges(self, rate: Floats, extra: Floats) -> Exchanges:
        """Lists what may be exchanged of the nodes in use; GPUs billed by themselves count as they are used."""
        shop, b = self.shop, self.shop.board
        opened = sorted({int(b.node[gpu]) for gpu in shop.nodes.gpus if b.count[gpu] > 0})
        worth = np.array([pool.price_per_hour for pool in shop.t.pools]) + extra
        of_kind = np.array([free * worth[pool] for pool, _, free in self.kinds])
        count = np.bincount([self.kind_of[node] for node in opened], minlength=len(self.kinds))
        used = shop.used
        single = float(worth[b.pool[used[self.is_single[used]]]].sum())
        now = float(count @ of_kind) + single - float((rate * shop.t.rate).sum())
        each = tuple(islice(self._saving(count), MOST_EXCHANGES))
        lost = [of_kind[list(closing)].sum() - of_kind[list(opening)].sum() for closing, opening in each]
        saved = np.array([self._count_saved(exchange) for exchange in each])
        return Exchanges(tuple(opened), each, saved, now - np.array(lost), np.zeros(len(each), dtype=np.int64))

    def _saving(self, count: Ints) -> Iterator[Exchange]:
        """Yields exchanges that save money: one or two nodes are closed, and one or none is opened."""
        there = Counter(self.kind_of.values())
        free = [(kind,) for kind in range(len(self.kinds)) if there[kind] > count[kind]]
        used = np.flatnonzero(count).tolist()
        pairs = [pair for pair in combinations_with_replacement(used, 2) if pair[0] != pair[1] or count[pair[0]] > 1]
        for closing in [*((kind,) for kind in used), *pairs]:
            for opening in [(), *free]:
                if not set(opening) & set(closing) and self._count_saved((closing, opening)) > 1e-9:
                    yield closing, opening

    def _count_saved(self, exchange: Exchange) -> float:
        closing, opening = exchange
        return float(sum(self.price[kind] for kind in closing) - sum(self.price[kind] for kind in opening))

    def _most_hopeful(self, of: Exchanges, scale: float) -> int | None:
        """Returns the exchange that saves most for its chance to serve everything; None if there is none."""
        if not of.each:
            return None
        chance = 1.0 / (1.0 + np.exp(np.clip((self.margin - of.slack) / max(scale, 1e-300), -50.0, 50.0)))
        return int(np.argmax(of.saved * chance * DOUBT_FACTOR**of.failed))

    # An exchange

    def _make(self, before: tuple[int, ...], exchange: Exchange) -> None:
        """Closes the nodes of these kinds that carry least, and opens those that have most room."""
        shop, b = self.shop, self.shop.board
        opened = list(before)
        for kind in exchange[0]:
            of_kind = [node for node in opened if self.kind_of[node] == kind]
            node = min(of_kind, key=lambda node: (int((b.count[self.gpus_of[node]] > 0).sum()), node))
            opened.remove(node)
            for gpu in self.gpus_of[node]:
                shop.empty(gpu)
        for kind in exchange[1]:
            of_kind = [node for node, is_of in self.kind_of.items() if is_of == kind and node not in before]
            opened.append(max(of_kind, key=lambda node: (float(b.cpu[node]), float(b.host[node]), -node)))
        shop.pools.closed[shop.nodes.gpus] = 1
        for node in opened:
            shop.pools.closed[self.gpus_of[node]] = self.closed_before[self.gpus_of[node]]
        shop.restack()

    def _refill(self, rate: Floats, extra: Floats, most_missing: float, failed: int) -> Iterator[bool]:
        """Serves everything again on the nodes that are open, if the search finds how; longer after failures.

        Where more than `most_missing` is missing, by its worth, after the spread, the exchange has failed.
        """
        shop = self.shop
        shop.fill(rate, shop.need)
        shop.restack()
        for _ in self.local_search.spread(rate, extra, FIRST_FACTOR * GROWTH_FACTOR**failed):
            yield False
        shop.fill(rate, shop.need)
        shop.restack()
        if float(rate @ shop.need) <= most_missing:
            for _ in self.local_search.repair(rate, extra, REPAIR_TRIES_PER_GPU):
                yield False
