"""Replays requests block by block and token by token, in plain lists, to compare the compiled loop with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from solvers.llm.iteration import BatchingLimits, IterationCost


@dataclass(eq=False)
class Request:
    """A request, the blocks that it has, and what became of it."""

    number: int
    arrival_ms: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int  # of the input: keys and values that are there already
    given: int = 0
    computed: int = 0
    decodes: bool = False  # only the token that it gave last is not computed yet
    blocks: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)  # the full blocks that it had when it was preempted
    preemptions: int = 0
    first_ms: float = -1.0
    last_ms: float = -1.0

    @property
    def known(self) -> int:
        return self.input_tokens + self.given


class Rank:
    """A scheduler with a queue and a memory of its own."""

    def __init__(self, cost: IterationCost, limits: BatchingLimits) -> None:
        self.cost, self.limits, self.form = cost, limits, limits.form
        self.free = list(range(limits.kv_tokens // limits.form.block_tokens))  # the next to be overwritten first
        self.contents: dict[int, tuple[int, int]] = {}  # a request and which of its blocks
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.leaving: list[Request] = []  # have ended; the iteration that is composed now does not know it yet
        self.clock = self.visible = 0.0
        self.decoding: list[Request] = []

    def grow(self, request: Request, tokens: int) -> bool:
        """Gives the request blocks for so many tokens, if enough are free."""
        wanted = -(-tokens // self.form.block_tokens) - len(request.blocks)
        if wanted > len(self.free):
            return False
        for _ in range(wanted):
            block = self.free.pop(0)
            self.contents[block] = (request.number, len(request.blocks))
            request.blocks.append(block)
        return True

    def release(self, request: Request) -> None:
        self.free += reversed(request.blocks)
        request.blocks = []

    def preempt(self, request: Request) -> None:
        request.lost = request.blocks[: request.computed // self.form.block_tokens]
        request.computed, request.decodes = 0, False
        request.preemptions += 1
        self.release(request)
        self.waiting.insert(0, request)

    def find_again(self, request: Request) -> list[int]:
        """Returns the blocks of a preempted request that are as it left them; its last token is always computed."""
        found: list[int] = []
        if self.form.prefix_caching:
            for place, block in enumerate(request.lost[: (request.known - 1) // self.form.block_tokens]):
                if self.contents[block] != (request.number, place):
                    break
                found.append(block)
        return found

    def compose(self) -> float:
        """Fills an iteration and returns its time."""
        self.decoding = []
        prompts, room, preempting = [], self.limits.tokens_per_iteration, False
        decoding = [request for request in self.running if request.decodes]
        held = 0
        for request in list(self.running):
            tokens = 1 if request.decodes else min(room, request.known - request.computed)
            while request in self.running and not self.grow(request, request.computed + tokens):
                preempting = True
                self.preempt(self.running.pop())
            if request not in self.running:
                break
            room -= tokens
            if request in decoding:
                self.decoding.append(request)
                held += request.known
            else:
                prompts.append((request, tokens))
        while room > 0 and self.waiting and not preempting:
            request = self.waiting[0]
            if len(self.running) + len(self.leaving) >= self.limits.sequences or request.arrival_ms > self.visible:
                break
            if -(-request.known // self.form.block_tokens) > len(self.free):
                break
            found = self.find_again(request)
            self.free = [block for block in self.free if block not in found]
            request.blocks, request.lost = found, []
            request.computed = max(len(found) * self.form.block_tokens, request.cached_tokens)
            tokens = min(room, request.known - request.computed)
            assert self.grow(request, request.computed + tokens)
            self.running.append(self.waiting.pop(0))
            prompts.append((request, tokens))
            room -= tokens
        pairs = 0.0
        for request, tokens in prompts:
            for _ in range(tokens):
                pairs += request.computed + 0.5
                request.computed += 1
        for request in self.decoding:
            request.computed += 1
        assert len(set(self.free)) == len(self.free)
        return self.cost.milliseconds(sum(tokens for _, tokens in prompts), pairs, len(self.decoding), held)

    def forget(self) -> None:
        for request in self.leaving:
            self.release(request)
        self.leaving = []

    def finish(self, now: float) -> int:
        """Gives each request whose known tokens are computed its next one; returns how many ended."""
        self.forget()
        for request in list(self.running):
            if request.computed < request.known:
                continue
            request.given += 1
            request.decodes = True
            if request.given == 1:
                request.first_ms = now
            if request.given == request.output_tokens:
                request.last_ms = now
                self.running.remove(request)
                self.leaving.append(request)
        ended = len(self.leaving)
        self.visible, self.clock = (self.clock if self.form.schedules_ahead else now), now
        if not self.form.schedules_ahead:
            self.forget()
        return ended


def replay_blocks(
    cost: IterationCost,
    limits: BatchingLimits,
    arrivals_ms: Sequence[float],
    input_tokens: Sequence[int],
    output_tokens: Sequence[int],
    cached_tokens: Sequence[int],
) -> list[Request]:
    """Serves all requests, which are sorted by arrival and each fit into memory alone."""
    requests = [
        Request(number, *fields)
        for number, fields in enumerate(zip(arrivals_ms, input_tokens, output_tokens, cached_tokens, strict=True))
    ]
    ranks = [Rank(cost, limits) for _ in range(limits.form.data_ranks)]
    coming, left = list(requests), len(requests)
    while left:
        busy = [rank for rank in ranks if rank.running or rank.waiting]
        now = min((rank.clock for rank in busy), default=0.0)
        if coming and (not busy or coming[0].arrival_ms <= now):
            request = coming.pop(0)
            load = [4 * len(rank.waiting) + len(rank.running) + len(rank.leaving) for rank in ranks]
            chosen = ranks[load.index(min(load))]
            for rank in ranks:
                if not busy if limits.form.experts else rank is chosen and rank not in busy:
                    rank.clock = max(rank.clock, request.arrival_ms)
            chosen.waiting.append(request)
            continue
        group = ranks if limits.form.experts else [next(rank for rank in busy if rank.clock == now)]
        if not any(rank.running for rank in group):
            for rank in group:
                rank.visible = now
                rank.forget()
        end = now + max(rank.compose() for rank in group)
        left -= sum(rank.finish(end) for rank in group)
    return requests
