"""Sizes a service on a language model: servers that compute prompts and answers, and two pools that do one each.

Of servers that do both there are those that profiles describe, and the same with fewer tokens an iteration: then a
prompt is computed in shorter parts, and answers between them wait less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from solvers.llm.capacity import rough_rate
from solvers.planning.fleet.offers import read_offers
from solvers.planning.language import TokenLengths, TokenPromise, TokenService
from solvers.planning.problem import Problem, Service, Variant
from solvers.pools.apart import ApartServers, plan_apart
from solvers.pools.confirm import ChooseServers, ConfirmedServers, confirm_servers
from solvers.pools.cover import PoolLimits, find_cheapest_pools
from solvers.pools.judge import ApartTerms, list_violations
from solvers.pools.links import ServerLink, price_keys
from solvers.pools.rated import list_kinds, rate_best, rate_shape
from solvers.pools.servers import (
    DeclaredRequests,
    RatedServer,
    RequestTrial,
    ServerGroup,
    SizedServers,
    TogetherServers,
)
from solvers.proof import must_be_right

REQUESTS = 40_000  # are simulated for each group of servers
SEEDS = (11, 12)  # of the simulations, all of which must keep the promise: what holds by chance once seldom does twice
PROMPT_PARTS = (1024, 512, 256)  # tokens of an iteration: fewer than the profile has make answers quicker
TOGETHER, PARTS, APART = "together", "parts", "apart"  # the forms
NOTHING_KEEPS = "nothing that may be rented keeps the promise"
CENT_PER_HOUR = 0.01  # a smaller difference is none
NO_GAIN_SHARE = 0.01  # of a rate: what a promise costs that hardly limits it


@dataclass(frozen=True, slots=True)
class ServerMarket:
    """What may be rented: GPUs of each type, their prices, and the links between servers, the quickest first."""

    most_gpus: Mapping[str, int]
    price_per_hour: Mapping[str, float]
    links: Sequence[ServerLink]
    nodes: Mapping[str, Mapping[int, int]] | None = None  # by type, how many there are of so many GPUs; None: any


@dataclass(frozen=True, slots=True)
class PartsServers:
    """Servers that do both, whose iterations compute fewer tokens of prompts than the profile says."""

    tokens: int
    confirmed: ConfirmedServers[TogetherServers]


@dataclass(frozen=True, slots=True)
class ServiceSize:
    """What to rent for a service; None where nothing that may be rented keeps its promise."""

    service: Service
    together: ConfirmedServers[TogetherServers] | None  # as profiles are
    parts: PartsServers | None  # only where they cost less
    apart: ConfirmedServers[ApartServers] | None
    why: str  # explains the saving, or that there is none

    @property
    def saving_per_hour(self) -> float:
        """Returns what two pools save against the cheapest servers that do both; 0 where they save nothing."""
        both = self.parts.confirmed if self.parts else self.together
        saving = both.price_per_hour - self.apart.price_per_hour if both and self.apart else 0.0
        return saving if saving > CENT_PER_HOUR else 0.0

    @property
    def cheapest(self) -> str:
        """Returns the form that costs least; of forms that cost alike the simplest; empty where none keeps the promise.

        Two pools are chosen only where they cost less, so an answer is never dearer than servers that do both.
        """
        if self.saving_per_hour or (self.apart and not self.together and not self.parts):
            return APART
        return PARTS if self.parts else TOGETHER if self.together else ""


def size_service(problem: Problem, service: Service, market: ServerMarket) -> ServiceSize:
    """Returns the cheapest servers found of each form that keep the promise at the service's rate, by simulation."""
    case = _ServiceCase(problem, service, market)
    together, apart = case.find_together(), case.find_apart()
    parts = case.find_parts(together.price_per_hour if together else inf)
    return ServiceSize(service, together, parts, apart, case.explain(together, parts, apart))


def find_cause(server: RatedServer, lengths: TokenLengths, promise: TokenPromise) -> str:
    """Returns which promise limits a server that does both: without it, it would carry more."""
    relaxed = {"TPOT": replace(promise, tpot_ms=inf), "TTFT": replace(promise, ttft_ms=inf)}
    rates = {name: rough_rate(server.cost, server.limits, lengths, kept) for name, kept in relaxed.items()}
    tightest = max(rates, key=rates.__getitem__)
    if rates[tightest] <= (1 + NO_GAIN_SHARE) * rough_rate(server.cost, server.limits, lengths, promise):
        return "memory or throughput limits servers that do both, and neither promise does"
    return f"{tightest} is tight"


@dataclass(frozen=True, slots=True)
class _ServiceCase:
    problem: Problem
    service: Service
    market: ServerMarket

    @property
    def rate(self) -> float:
        return self.service.rate_per_second

    @property
    def tokens(self) -> TokenService:
        assert self.service.tokens
        return self.service.tokens

    @property
    def limits(self) -> PoolLimits:
        return PoolLimits(self.market.most_gpus, max(1, self.service.min_instances), self.market.nodes)

    @property
    def variants(self) -> list[Variant]:
        known = self.problem.models[self.service.model]
        return [variant for variant in known if variant.llm and variant.name in self.service.variants]

    def find_together(self) -> ConfirmedServers[TogetherServers] | None:
        return confirm_servers(partial(self._cover, self._list_servers()), self.is_kept, self.rate)

    def find_parts(self, dearest: float) -> PartsServers | None:
        """Returns the cheapest servers with shorter parts of prompts, if they cost less than this."""
        best: PartsServers | None = None
        for tokens in PROMPT_PARTS:
            cover = partial(self._cover, self._list_with_parts(tokens))
            found = confirm_servers(cover, self.is_kept, self.rate)
            if found and found.price_per_hour < dearest - CENT_PER_HOUR:
                best, dearest = PartsServers(tokens, found), found.price_per_hour
        return best

    def find_apart(self) -> ConfirmedServers[ApartServers] | None:
        """Returns the cheapest two pools, of each variant over each link; of those that cost alike the quickest link.

        Raises SolverBug where the judge finds a broken rule.
        """
        best: ConfirmedServers[ApartServers] | None = None
        for variant in self.variants:
            kinds = self._list_kinds(variant)
            for link in self.market.links:
                choose = self._choose_over(link, variant, kinds, best.price_per_hour - CENT_PER_HOUR if best else inf)
                best = confirm_servers(choose, self.is_kept, self.rate) or best
        return best

    def _choose_over(
        self, link: ServerLink, variant: Variant, kinds: Sequence[RatedServer], dearest: float
    ) -> ChooseServers[ApartServers]:
        """Returns what chooses two pools of a variant over a link, and only ones that cost less than this."""
        assert variant.llm
        lengths, size = self._lengths_of(variant), variant.llm
        sent = price_keys(link, size.kv_bytes_per_token, self.rate * lengths.input_mean)
        planner = plan_apart(kinds, lengths, self.tokens.promise, sent)
        terms = ApartTerms(
            self.rate, lengths.input_mean, size.context_tokens, size.kv_bytes_per_token, self.market.price_per_hour,
            self.market.most_gpus, self.limits.fewest, self.market.nodes,
        )  # fmt: skip

        def choose(rate_per_second: float) -> ApartServers | None:
            servers = planner.find_servers(rate_per_second, self.limits)
            if servers is None or servers.cost_per_hour >= dearest:
                return None
            must_be_right("the choice of two pools", list_violations(servers, terms))
            return servers

        return choose

    def is_kept(self, servers: SizedServers) -> bool:
        """Returns whether the promise holds with these servers, in every simulation."""
        promise = self.tokens.promise
        source = DeclaredRequests(min(map(self._lengths_of, self.variants), key=lambda lengths: lengths.context_tokens))
        trials = (RequestTrial(source, promise, self.rate, REQUESTS, seed) for seed in SEEDS)
        return all(servers.simulate(trial).keeps(promise) for trial in trials)

    def explain(
        self,
        together: ConfirmedServers[TogetherServers] | None,
        parts: PartsServers | None,
        apart: ConfirmedServers[ApartServers] | None,
    ) -> str:
        both = parts.confirmed if parts else together
        if apart is None:
            return (
                "apart is not possible: no two pools of what may be rented keep the promise" if both else NOTHING_KEEPS
            )
        if both is None:
            return "only apart keeps the promise"
        saving = both.price_per_hour - apart.price_per_hour
        if saving <= CENT_PER_HOUR:
            limit = self._spell_limit(apart.servers, (*apart.servers.prefill, *apart.servers.decode))
            return (
                f"apart does not pay: two pools cost {apart.price_per_hour:.4g} an hour{limit}, servers that do both"
                f" {both.price_per_hour:.4g}"
            )
        whole, largest = (
            max(groups, key=lambda group: group.rate_per_second).server
            for groups in (both.servers.groups, apart.servers.decode)
        )
        limit = self._spell_limit(apart.servers, [group for group in apart.servers.decode if group.server == largest])
        return (
            f"apart saves {saving:.4g} an hour since {self._find_cause(together or both)}: a server of"
            f" {largest.degree} {largest.gpu_type} gives the answers of {largest.rate_per_second:.3g} requests/s within"
            f" {self.tokens.promise.tpot_ms:g} ms a token{limit}; one of {whole.degree} {whole.gpu_type} that computes"
            f" their prompts, too, serves {whole.rate_per_second:.3g}"
        )

    def _spell_limit(self, pools: ApartServers, groups: Sequence[ServerGroup]) -> str:
        """Returns that the link limits servers of these groups, where it does."""
        is_cut = any(pools.fills_link(group.server, self.tokens.lengths.input_mean) for group in groups)
        return f" (limited by {pools.sent.link.kind})" if is_cut else ""

    def _find_cause(self, both: ConfirmedServers[TogetherServers]) -> str:
        """Returns what limits the server that does both and has most of the load."""
        server = max(both.servers.groups, key=lambda group: group.rate_per_second).server
        variant = next(each for each in self.variants if server.variant in ("", each.name))
        return find_cause(server, self._lengths_of(variant), self.tokens.promise)

    def _cover(self, servers: Sequence[RatedServer], planned: float) -> TogetherServers | None:
        pools = find_cheapest_pools([servers], planned, self.limits)
        return TogetherServers(pools[0]) if pools else None

    def _list_servers(self) -> list[RatedServer]:
        """Returns the servers that keep the promise alone, as the joint planner would run them."""
        return [
            rate_shape(self.problem, self.service, shape, self.market.price_per_hour[shape.gpu_type])
            for shape in read_offers(self.problem).find_token_shapes(self.service)
            if shape.gpu_type in self.market.most_gpus
        ]

    def _list_with_parts(self, tokens: int) -> list[RatedServer]:
        found: list[RatedServer] = []
        for variant in self.variants:
            for kind in self._list_kinds(variant):
                if kind.limits.tokens_per_iteration > tokens:
                    server = replace(kind, limits=replace(kind.limits, tokens_per_iteration=tokens))
                    found += rate_best(server, self._lengths_of(variant), self.tokens.promise)
        return found

    def _list_kinds(self, variant: Variant) -> list[RatedServer]:
        kinds = list_kinds(self.problem, self.service, variant, self.market.most_gpus)
        return [replace(kind, gpu_price_per_hour=self.market.price_per_hour[kind.gpu_type]) for kind in kinds]

    def _lengths_of(self, variant: Variant) -> TokenLengths:
        assert variant.llm
        return replace(self.tokens.lengths, context_tokens=variant.llm.context_tokens)
