"""Decides what each iteration computes: data in, data out. docs/token-model.md states the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents.programs.llm.cost import StubCost, StubLimits


class ScheduledRequest:
    """One request: a prompt of some length, and the number of tokens that its answer gets."""

    __slots__ = ("cached", "came", "client", "computed", "first_at", "given", "gone", "last_at", "prompt", "wanted")

    def __init__(self, prompt: int, wanted: int, came: float = 0.0, cached: int = 0, client: Any = None) -> None:
        self.prompt = prompt
        self.wanted = wanted
        self.cached = cached  # of the prompt: keys and values are there already
        self.came = came
        self.client = client
        self.given = 0
        self.computed = 0  # of the prompt, and of tokens given before memory was lost
        self.first_at = self.last_at = 0.0
        self.gone = False  # the client left

    @property
    def known(self) -> int:
        """Returns the tokens that must be computed before it decodes: its prompt, and the tokens that it was given."""
        return self.prompt + self.given

    @property
    def held(self) -> int:
        """Returns the tokens that it holds in memory while it runs: those, and its next token."""
        return self.known + 1

    @property
    def decodes(self) -> bool:
        return self.computed >= self.known


@dataclass(frozen=True, slots=True)
class Iteration:
    """The work of one iteration, and how long it takes."""

    milliseconds: float
    decoding: tuple[ScheduledRequest, ...]  # get a token each
    prompts: tuple[tuple[ScheduledRequest, int], ...]  # and how many of their tokens are computed


class TokenScheduler:
    """Requests in order of arrival, and those that run in order of admission."""

    def __init__(self, cost: StubCost, limits: StubLimits, preempted: Callable[[], None]) -> None:
        self.cost = cost
        self.limits = limits
        self.waiting: deque[ScheduledRequest] = deque()
        self.running: list[ScheduledRequest] = []
        self.held = 0  # tokens of all that run
        self._preempted = preempted

    @property
    def waiting_tokens(self) -> int:
        return sum(request.prompt for request in self.waiting)

    def add(self, request: ScheduledRequest) -> None:
        self.waiting.append(request)

    def next(self) -> Iteration | None:
        """Returns the next iteration; None if nothing is left to compute."""
        self._forget_gone()
        self._make_room()
        decoding = [request for request in self.running if request.decodes]
        left = self.limits.tokens_per_iteration - len(decoding)
        prompts = []
        for request in [each for each in self.running if not each.decodes]:
            if left > 0:
                part = min(left, request.known - request.computed)
                prompts.append((request, part))
                left -= part
        while left > 0 and self._admits():
            request = self.waiting.popleft()
            self.running.append(request)
            self.held += request.held
            request.computed = request.cached
            part = min(left, request.known - request.computed)
            prompts.append((request, part))
            left -= part
        if not decoding and not prompts:
            return None
        pairs = sum(part * request.computed + part * (part - 1) / 2 for request, part in prompts)
        kv_tokens = sum(request.known for request in decoding)
        tokens = sum(part for _, part in prompts)
        milliseconds = self.cost.milliseconds(tokens, pairs, len(decoding), kv_tokens)
        return Iteration(milliseconds, tuple(decoding), tuple(prompts))

    def ended(self, iteration: Iteration, now: float) -> list[ScheduledRequest]:
        """Notes what an iteration computed, and returns the requests that got a token from it."""
        served = [request for request in iteration.decoding if not request.gone]
        for request, part in iteration.prompts:
            request.computed += part
            if request.decodes and not request.gone:
                served.append(request)
        for request in served:
            # The token given now is computed with the next iteration: a request that decodes has all the others.
            request.given += 1
            request.computed += 1
            request.first_at = request.first_at or now
            request.last_at = now
            self.held += 1
            if request.given >= request.wanted:
                self.running.remove(request)
                self.held -= request.held
        return served

    def _admits(self) -> bool:
        return (
            bool(self.waiting)
            and len(self.running) < self.limits.sequences
            and self.held + self.waiting[0].held <= self.limits.kv_tokens
        )

    def _make_room(self) -> None:
        """Takes memory from the requests admitted last until every other one has room for its next token."""
        while self.held > self.limits.kv_tokens:
            request = self.running.pop()
            self.held -= request.held
            request.computed = 0
            self.waiting.appendleft(request)
            self._preempted()

    def _forget_gone(self) -> None:
        for request in [each for each in self.running if each.gone]:
            self.running.remove(request)
            self.held -= request.held
        while self.waiting and self.waiting[0].gone:
            self.waiting.popleft()
