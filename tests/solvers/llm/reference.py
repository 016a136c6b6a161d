"""Simulates a language model's server iteration by iteration and token by token, in plain loops to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan

from solvers.llm.iteration import BatchingLimits, IterationCost


@dataclass(slots=True)
class ServedRequest:
    """A request of the simulation, and what became of it."""

    arrival_ms: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # of the input: keys and values that are there already
    given: int = 0  # tokens of the answer so far
    computed: int = 0  # tokens of input and answer whose keys and values are there, since it was admitted
    decodes: bool = False  # it runs, and only the token that it gave last is not computed yet
    preemptions: int = 0
    token_times_ms: list[float] = field(default_factory=list)

    @property
    def prompt_tokens(self) -> int:
        """Returns what must be computed before the next token: the input, and after a preemption what was given."""
        return self.input_tokens + self.given

    @property
    def ttft_ms(self) -> float:
        return self.token_times_ms[0] - self.arrival_ms if self.token_times_ms else nan

    @property
    def tpot_ms(self) -> float:
        """Returns the time of a token after the first, on average; a request of one token has none."""
        if len(self.token_times_ms) < 2:
            return nan
        return (self.token_times_ms[-1] - self.token_times_ms[0]) / (len(self.token_times_ms) - 1)


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """What a simulation measured."""

    requests: tuple[ServedRequest, ...]
    peak_kv_tokens: int
    preemptions: int
    too_long: int  # requests that do not fit into memory alone: they are refused
    busy_ms: float
    end_ms: float


def simulate(
    cost: IterationCost,
    limits: BatchingLimits,
    arrivals_ms: Sequence[float],
    input_tokens: Sequence[int],
    output_tokens: Sequence[int],
    cached_tokens: Sequence[int],
) -> ReferenceRun:
    """Serves the requests, which are sorted by arrival, until all have ended."""
    requests = [
        ServedRequest(*fields) for fields in zip(arrivals_ms, input_tokens, output_tokens, cached_tokens, strict=True)
    ]
    fitting = [request for request in requests if request.input_tokens + request.output_tokens <= limits.kv_tokens]
    coming = list(fitting)  # not arrived yet
    waiting: list[ServedRequest] = []
    running: list[ServedRequest] = []  # in order of admission
    now = busy_ms = 0.0
    peak = 0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].arrival_ms)
        while coming and coming[0].arrival_ms <= now:
            waiting.append(coming.pop(0))
        ms, held = _iteration(cost, limits, waiting, running)
        now += ms
        busy_ms += ms
        peak = max(peak, held)
        for request in list(running):
            if request.computed >= request.prompt_tokens:
                request.given += 1
                request.decodes = True
                request.token_times_ms.append(now)
                if request.given == request.output_tokens:
                    running.remove(request)
    preemptions = sum(request.preemptions for request in requests)
    return ReferenceRun(tuple(requests), peak, preemptions, len(requests) - len(fitting), busy_ms, now)


def _iteration(
    cost: IterationCost, limits: BatchingLimits, waiting: list[ServedRequest], running: list[ServedRequest]
) -> tuple[float, int]:
    """Fills an iteration; returns its time and the tokens that memory holds at its end.

    A running request holds its prompt and its next token. If it decodes, the token that it gave last is computed.
    """
    while sum(_held(request) for request in running) > limits.kv_tokens:
        last = running.pop()
        last.computed, last.decodes = 0, False
        last.preemptions += 1
        waiting.insert(0, last)
    decoding = [request for request in running if request.decodes]
    for request in decoding:
        request.computed += 1
    kv_tokens = sum(request.computed for request in decoding)
    left = max(0, limits.tokens_per_iteration - len(decoding))
    prompt_tokens = prompt_pairs = 0
    begun = [request for request in running if not request.decodes]
    while left > 0:
        if begun:
            request = begun.pop(0)
        elif waiting and len(running) < limits.sequences and _fits(waiting[0], running, limits):
            request = waiting.pop(0)
            running.append(request)
            request.computed = request.cached_tokens
        else:
            break
        for _ in range(min(left, request.prompt_tokens - request.computed)):
            prompt_pairs += request.computed  # the tokens before this one
            prompt_tokens += 1
            request.computed += 1
            left -= 1
    ms = cost.milliseconds(prompt_tokens, prompt_pairs, len(decoding), kv_tokens)
    return ms, sum(_held(request) for request in running)


def _held(request: ServedRequest) -> int:
    """Returns the tokens that a running request holds until the end of the iteration: its prompt and its next token."""
    return request.prompt_tokens + 1


def _fits(request: ServedRequest, running: list[ServedRequest], limits: BatchingLimits) -> bool:
    return sum(_held(other) for other in running) + _held(request) <= limits.kv_tokens
