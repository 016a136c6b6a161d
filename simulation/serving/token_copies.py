"""The work of a simulated copy of a language model, and how a gateway spreads requests over such copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from math import inf

import numpy as np

from agents.keeper.copies import NodeCopy
from agents.node.report_minute import CopyTotals
from agents.seams.traffic import Counters, Served, TokensServed
from simulation.fleet_truth import FleetTruth
from simulation.serving import tokens as of
from simulation.serving.batches import Floats, Ints
from simulation.serving.copies import EDGES_S, LONGEST_QUEUE_REQUESTS, PATIENCE_SECONDS, CopyWork, largest_batch
from simulation.serving.tokens import advance
from solvers.llm.iteration import BatchingLimits, IterationCost, TokenPromise
from solvers.llm.streams import TokenStream
from solvers.planning.judge.adapters import keep_places
from solvers.planning.judge.whole import MOST_SEQUENCES, iterations, kv_tokens

EDGES_MS: Floats = EDGES_S * 1000
ANSWER_TOKENS = 1024  # that a gateway counts for every answer
SLOTS = LONGEST_QUEUE_REQUESTS + 2 * MOST_SEQUENCES


@dataclass(frozen=True, slots=True)
class TokenServer:
    """The speed and the limits of a copy's process, and the promise that it is to keep."""

    cost: IterationCost
    limits: BatchingLimits
    context_tokens: int
    promise: TokenPromise
    patience_seconds: float = PATIENCE_SECONDS  # of a caller, until its request is admitted


def _ints(size: int) -> Ints:
    return np.zeros(size, dtype=np.int64)


@dataclass(slots=True)
class TokenWork(CopyWork):
    """The work of one copy of a language model. `server` is set before anything arrives."""

    server: TokenServer | None = None
    sums: Ints = field(default_factory=lambda: _ints(of.TOTALS))
    given: int = 0  # requests that the gateway gave it
    _state: Ints = field(default_factory=lambda: _ints(of.STATE_NUMBERS))
    _clock_ms: Floats = field(default_factory=lambda: np.zeros(2))
    _requests: Ints = field(default_factory=lambda: np.zeros((of.REQUEST_NUMBERS, SLOTS), dtype=np.int64))
    _times_ms: Floats = field(default_factory=lambda: np.zeros((2, SLOTS)))
    _rooms: tuple[Ints, Ints, Ints] = field(
        default_factory=lambda: (_ints(MOST_SEQUENCES + 1), _ints(MOST_SEQUENCES + 1), _ints(MOST_SEQUENCES + 1))
    )
    _ring: Ints = field(default_factory=lambda: _ints(LONGEST_QUEUE_REQUESTS))
    _free: Ints = field(default_factory=lambda: np.arange(SLOTS, dtype=np.int64))
    _settings: tuple[Floats, Ints, Floats] | None = None
    _busy_ms: float = 0.0  # until the last tick's end

    def __post_init__(self) -> None:
        self._state[of.PART], self._state[of.FREE] = -1, SLOTS
        self._clock_ms[0] = self.free * 1000

    def set_server(self, server: TokenServer | None) -> None:
        """Sets what its process can do from now on; None changes nothing."""
        if server is None or server == self.server:
            return
        self.server, promise = server, server.promise
        self._settings = (
            np.array(astuple(server.cost)), np.array(server.limits.counts),
            np.array([promise.ttft_ms, promise.tpot_ms, server.patience_seconds * 1000]),
        )  # fmt: skip

    def advance(self, seconds: float) -> None:
        """Runs every iteration that begins before this moment."""
        until_ms = seconds * 1000
        if self._settings is None or self._clock_ms[0] >= until_ms or self._state[of.FREE] == SLOTS:
            return
        advance(
            until_ms, *self._settings, self._state, self._clock_ms, self._requests, self._times_ms, *self._rooms,
            self._ring, self._free, EDGES_MS, self.answered, self.sums,
        )  # fmt: skip

    def take(self, seconds: float, inputs: int, outputs: int, cached: int) -> None:
        """Takes a request that arrives at this moment, to which the server was advanced; an error if it cannot."""
        server, state = self.server, self._state
        self.given += 1
        is_full = state[of.WAITING] == LONGEST_QUEUE_REQUESTS
        if server is None or is_full or inputs + outputs > min(server.limits.kv_tokens, server.context_tokens):
            self.sums[of.ERRORS] += 1
            return
        state[of.FREE] -= 1
        state[of.OPEN_INPUT] += inputs
        slot = self._free[state[of.FREE]]
        self._requests[:, slot] = inputs, outputs, cached, 0, 0
        self._times_ms[:, slot] = seconds * 1000, inf
        self._ring[(state[of.HEAD] + state[of.WAITING]) % LONGEST_QUEUE_REQUESTS] = slot
        state[of.WAITING] += 1

    def open_at(self, seconds: float) -> int:
        """Counts the requests without their last token at a moment to which the server was advanced."""
        ending = int(self._state[of.LAST]) if self._clock_ms[0] > seconds * 1000 else 0
        return SLOTS - int(self._state[of.FREE]) + ending

    def tokens_at(self, seconds: float) -> int:
        """Counts the tokens in flight at a moment to which the server was advanced, as a gateway does.

        The length of an answer is unknown before it ends.
        """
        ending = int(self._state[of.LAST_INPUT]) if self._clock_ms[0] > seconds * 1000 else 0
        return int(self._state[of.OPEN_INPUT]) + ending + ANSWER_TOKENS * self.open_at(seconds)

    @property
    def waits(self) -> bool:
        return bool(self._state[of.FREE] < SLOTS)

    def open_requests(self, seconds: float) -> tuple[int, int]:
        waiting = int(self._state[of.WAITING])
        return waiting, self.open_at(seconds) - waiting

    def serve(self, copy: NodeCopy, since: float, until: float, noise: Floats) -> None:
        """Goes on to the end of a tick."""
        self.advance(until)
        self.within, self.errors = int(self.sums[of.WITHIN]), int(self.sums[of.ERRORS])
        # What an iteration does after the tick counts in the next one.
        busy_ms = float(self._clock_ms[1] - max(0.0, self._clock_ms[0] - until * 1000))
        self.busy_share = min(1.0, max(0.0, busy_ms - self._busy_ms) / (until - since) / 1000)
        self.busy_seconds += max(0.0, busy_ms - self._busy_ms) / 1000
        self._busy_ms = max(self._busy_ms, busy_ms)

    def fail(self) -> None:
        """Ends its process, and every stream with it."""
        self.sums[of.ERRORS] += SLOTS - self._state[of.FREE]
        self.errors = int(self.sums[of.ERRORS])
        self._state[:] = 0
        self._state[of.PART], self._state[of.FREE] = -1, SLOTS
        self._free = np.arange(SLOTS, dtype=np.int64)

    def forget(self) -> None:
        CopyWork.forget(self)
        self.sums[:] = 0

    def token_sums(self) -> Ints:
        return self.sums

    def counters(self) -> Counters:
        paced, late = int(self.sums[of.PACED]), int(self.sums[of.PACE_LATE])
        return Counters(self.requests, self.errors, tuple(self.answered.tolist()), paced, late)

    def totals(self, copy: NodeCopy) -> CopyTotals:
        counters = self.counters()
        served = Served(
            counters,
            queue=float(self._state[of.WAITING]),
            busy_seconds=self.busy_seconds,
            memory_gib=copy.wanted.memory_gib,
            batch=int(copy.wanted.batch.planned) if copy.wanted.batch else None,
            tokens=TokensServed(int(self.sums[of.TOKENS_IN]), int(self.sums[of.TOKENS_OUT])),
        )
        return CopyTotals(counters, "gateway", served)


def spread(servers: Sequence[tuple[NodeCopy, TokenWork]], arrivals: TokenStream) -> None:
    """Gives each request, at its time in seconds, to the copy with the fewest tokens in flight by weight.

    Of equals it is the one that was given fewest so far.
    """
    weighted = [(max(copy.wanted.rate_per_second, 1e-9), work) for copy, work in servers]
    requests = zip(arrivals.arrivals.tolist(), arrivals.inputs, arrivals.outputs, arrivals.cached, strict=True)
    for at, inputs, outputs, cached in requests:
        best, least = weighted[0][1], (inf, inf)
        for weight, work in weighted:
            work.advance(at)
            load = (work.tokens_at(at) + inputs + ANSWER_TOKENS) / weight, work.given / weight
            if load < least:
                best, least = work, load
        best.take(at, inputs, outputs, cached)


def new_work(copy: NodeCopy, now: float) -> CopyWork:
    """Returns the work of a copy that starts."""
    return TokenWork(free=now) if copy.wanted.tpot_ms else CopyWork(free=now)


def server_of(truth: FleetTruth, gpu_type: str, copy: NodeCopy, clock_mhz: float) -> TokenServer | None:
    """Returns a copy's server at a clock; None where its profile or its service is gone, or leaves no token memory."""
    problem, wanted = truth.problem, copy.wanted
    key = wanted.model, wanted.variant, gpu_type
    profile, service, degree = problem.profiles.get(key), problem.services.get(copy.service), len(wanted.all_gpus)
    size = next((known.llm for known in problem.models.get(wanted.model, ()) if known.name == wanted.variant), None)
    if profile is None or size is None or service is None or service.tokens is None or degree not in profile.iteration:
        return None
    profile = keep_places(profile, service)
    if kv_tokens(profile, size, degree, wanted.memory_gib) < 1:
        return None
    cost, limits = iterations(
        profile, size, problem.gpu_types[gpu_type], degree, largest_batch(copy), wanted.memory_gib, clock_mhz, 0.0
    )
    return TokenServer(cost, limits, size.context_tokens, service.tokens.promise)
