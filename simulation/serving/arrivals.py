"""When requests arrive at a simulated fleet: as a trace says, or drawn at each service's rate with gaps that vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulation.limits import POISSON_CV
from simulation.serving.batches import Floats, Ints
from solvers.llm.iteration import TokenLengths
from solvers.llm.streams import TokenStream, count_cached_tokens, stream_of

FEWEST_DRAWN = 16
NO_TIMES: Floats = np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class PlayedRequests:
    """The requests of one service in a trace: their times, ascending, and their tokens, 0 where they are not given."""

    times: Floats
    inputs: Ints
    outputs: Ints

    def between(self, since: float, until: float) -> PlayedRequests:
        first, last = np.searchsorted(self.times, (since, until))
        return PlayedRequests(self.times[first:last], self.inputs[first:last], self.outputs[first:last])


def make_requests_at(times: Floats) -> PlayedRequests:
    """Returns requests at these times, whose tokens are not given."""
    return PlayedRequests(times, np.zeros(len(times), dtype=np.int64), np.zeros(len(times), dtype=np.int64))


NO_REQUESTS = make_requests_at(NO_TIMES)


class VaryingGaps:
    """RequestTimes of one service whose gaps follow a Gamma distribution, on a clock that runs as fast as its load."""

    def __init__(self, gap_cv: float, seed: int, service: str) -> None:
        self._shape = 1 / gap_cv**2
        self._rng = np.random.default_rng([seed, 13, *service.encode()])
        self._coming = self._gaps(FEWEST_DRAWN)  # requests expected until each of the next ones

    def take(self, since: float, until: float, expected: float) -> Floats:
        """Returns the times of the requests between these moments, for which so many are expected."""
        while self._coming[-1] < expected:
            more = self._gaps(max(FEWEST_DRAWN, int(expected)))
            self._coming = np.concatenate([self._coming, self._coming[-1] + more])
        count = int(np.searchsorted(self._coming, expected))
        due, self._coming = self._coming[:count], self._coming[count:] - expected
        return since + due * ((until - since) / expected) if count else NO_TIMES

    def _gaps(self, count: int) -> Floats:
        return np.cumsum(self._rng.gamma(self._shape, 1 / self._shape, count))


class RequestTimes:
    """The times of a fleet's requests, where they are not those of Poisson arrivals; and those of the last tick."""

    def __init__(self, seed: int) -> None:
        self.trace: Mapping[str, PlayedRequests] | None = None  # by service; None: they are drawn by rates
        self.gap_cv = POISSON_CV
        self.latest: dict[str, list[Floats]] = {}  # of the last tick by service, in parts
        self._seed = seed
        self._gaps: dict[str, VaryingGaps] = {}
        self._lengths: dict[str, np.random.Generator] = {}
        self._traced = NO_REQUESTS  # of the last call of `times`
        self._refused = np.random.default_rng([seed, 17])

    def times(self, service: str, since: float, until: float, expected: float) -> Floats | None:
        """Returns when requests arrive; None for Poisson arrivals, which the caller draws."""
        if self.trace is not None:
            self._traced = self.trace.get(service, NO_REQUESTS).between(since, until)
            return self._traced.times
        if self.gap_cv == POISSON_CV:
            return None
        if service not in self._gaps:
            self._gaps[service] = VaryingGaps(self.gap_cv, self._seed, service)
        return self._gaps[service].take(since, until, expected)

    def draw_with_lengths(self, service: str, lengths: TokenLengths, times: Floats) -> TokenStream:
        """Returns requests at these times: those of the trace as `times` found them, or drawn from the lengths."""
        if service not in self._lengths:
            self._lengths[service] = np.random.default_rng([self._seed, 19, *service.encode()])
        normals = self._lengths[service].standard_normal((len(times), 2))
        drawn = stream_of(lengths, times, np.ascontiguousarray(normals[:, 0]), np.ascontiguousarray(normals[:, 1]))
        if self.trace is None:
            return drawn
        given, context = self._traced, lengths.context_tokens  # what is drawn leaves room for what is given
        inputs = np.where(
            given.inputs > 0, given.inputs, np.clip(drawn.inputs, 1, np.maximum(1, context - given.outputs))
        )
        outputs = np.where(given.outputs > 0, given.outputs, np.clip(drawn.outputs, 1, np.maximum(1, context - inputs)))
        return TokenStream(times, inputs, outputs, count_cached_tokens(lengths, inputs))

    def note(self, service: str, times: Floats) -> None:
        """Notes arrivals of this tick, so that gateways can count them."""
        self.latest.setdefault(service, []).append(times)

    def note_refused(self, service: str, since: float, until: float, count: int) -> None:
        """Notes Poisson arrivals that no copy could take; their times change no other draw."""
        self.note(service, self._refused.uniform(since, until, count))
