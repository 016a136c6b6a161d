"""The work of a simulated copy: requests that wait at it, and what it has answered so far."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np

from agents.contract.fields import LATENCY_EDGES_MS
from agents.keeper.copies import NodeCopy
from agents.node.report_minute import CopyTotals
from agents.seams.traffic import Counters, Served
from simulation.serving.batches import Floats, Ints, serve

EDGES_S: Floats = np.array(LATENCY_EDGES_MS) / 1000
EMPTY_QUEUE: Floats = np.zeros(0)
SWAPPED_GIB_PER_SECOND = 10.0  # of GPU memory, to the host and back
PATIENCE_SECONDS = 30.0  # how long a caller waits for its answer
LONGEST_QUEUE_REQUESTS = 1024  # of a gpuwright-serve, and of what a gateway holds for one server
SAVE_SECONDS = 30.0  # between two saves of a job, as gpuwright-train has it
DRAWS_PER_TICK = 16  # different times of a batch in one tick


def count_move_seconds(copy: NodeCopy) -> float:
    """Returns how long a job's GPU memory takes to the host, or back."""
    return copy.wanted.memory_gib / SWAPPED_GIB_PER_SECOND


def largest_batch(copy: NodeCopy) -> int:
    """Returns the most requests that the copy answers together."""
    return max(1, int(copy.wanted.batch.planned)) if copy.wanted.batch else 1


@dataclass(slots=True)
class CopyWork:
    """The work of one copy."""

    queue: Floats = field(default_factory=lambda: EMPTY_QUEUE)  # arrival time of each waiting request
    inside: int = 0  # the first of them, which can no longer be turned away
    free: float = 0.0
    in_batch: int = 0  # requests of the last batch, which runs until then
    exec_s: float = 0.0  # of a batch, in this tick
    varies: Floats | None = None  # single batches over it, where neighbours make them differ
    answered: Ints = field(default_factory=lambda: np.zeros(len(LATENCY_EDGES_MS) + 1, dtype=np.int64))
    errors: int = 0
    within: int = 0
    busy_seconds: float = 0.0
    batches: int = 0
    units: float = 0.0  # of a job: steps, or requests
    saved: float = 0.0  # of a job: the units of its last save
    saved_at: float | None = None  # of a job: its last save; None: it has not loaded what earlier copies saved
    busy_share: float = 0.0  # of the previous tick

    def arrive(self, arrivals: Floats) -> None:
        """Adds arrivals, in order."""
        self.queue = np.concatenate([self.queue, arrivals])

    def serve(self, copy: NodeCopy, since: float, until: float, noise: Floats) -> None:
        """Serves what waits, as the copy's shape and knobs allow."""
        wanted = copy.wanted
        batch = largest_batch(copy)
        busy = max(0.0, self.free - since)  # its last batch goes on
        if len(self.queue):
            remaining, self.inside, self.free, executed, batches, within, failed, turned, last = serve(
                self.queue, self.inside, batch, self.exec_s * noise, wanted.batch_timeout_ms / 1000,
                max(self.free, since), until, wanted.slo_ms / 1000, PATIENCE_SECONDS, LONGEST_QUEUE_REQUESTS, EDGES_S,
                self.answered,
            )  # fmt: skip
            self.queue = self.queue[:remaining].copy()
            self.in_batch = last or self.in_batch
            self.batches += batches
            self.within += within
            self.errors += failed + turned
            busy += executed
        busy -= max(0.0, self.free - until)  # what is left of its last batch counts in the next tick, and only there
        self.busy_share = busy / (until - since)
        self.busy_seconds += busy

    def train(
        self, units_per_second: float, since: float, until: float, saves: MutableMapping[str, float], job: str
    ) -> None:
        """Continues a job from its last save, and saves now and then."""
        if self.saved_at is None:
            self.units = self.saved = saves.get(job, 0.0)
            self.saved_at = since
        self.units += units_per_second * (until - since)
        self.busy_share = 1.0
        if until >= self.saved_at + SAVE_SECONDS:
            self.save(until, saves, job)

    def save(self, seconds: float, saves: MutableMapping[str, float], job: str) -> None:
        """Saves the job's progress, from which its next copy continues."""
        saves[job] = self.saved = self.units
        self.saved_at = seconds

    @property
    def waits(self) -> bool:
        """Returns whether a request waits for its answer."""
        return len(self.queue) > 0

    def open_requests(self, seconds: float) -> tuple[int, int]:
        """Returns the requests that wait at this moment, and those that are computed."""
        return len(self.queue), self.in_batch if self.free > seconds else 0

    def token_sums(self) -> Ints | None:
        """Returns the totals of a language model's server."""
        return None

    def forget(self) -> None:
        """Forgets what it has answered, once that is counted."""
        self.answered, self.within, self.errors = np.zeros_like(self.answered), 0, 0

    def fail(self) -> None:
        """Ends its process, with all that waited."""
        self.errors += len(self.queue)
        self.queue, self.inside = EMPTY_QUEUE, 0

    @property
    def requests(self) -> int:
        return int(self.answered.sum()) + self.errors

    def counters(self) -> Counters:
        return Counters(self.requests, self.errors, tuple(self.answered.tolist()))

    def totals(self, copy: NodeCopy) -> CopyTotals:
        """Returns what is visible from outside: the gateway counts what it served, the copy reports the rest."""
        if not copy.served:
            served = Served(Counters(), memory_gib=copy.wanted.memory_gib, steps=self.units, saved_steps=self.saved)
            return CopyTotals(Counters(), "", served)
        counters = self.counters()
        answered = counters.requests - counters.errors
        served = Served(
            counters,
            batch_mean=answered / self.batches if self.batches else None,
            queue=float(len(self.queue)),
            busy_seconds=self.busy_seconds,
            memory_gib=copy.wanted.memory_gib,
            batch=int(copy.wanted.batch.planned) if copy.wanted.batch else None,
            batch_timeout_ms=copy.wanted.batch_timeout_ms,
            batches=float(self.batches),
        )
        return CopyTotals(counters, "gateway", served)
