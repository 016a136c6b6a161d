"""How fast programs run on a simulated GPU: each as it says itself, unless the GPU has a truth of its own.

A program names the model that it plays, and receives the times of its batches beside what else is busy on the GPU now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

LONGEST_NAME = 200
LONGEST_LATENCY = 1100  # as long as a template lets the argument be
MOST_BATCH = 4096


@dataclass(slots=True)
class PlayedLoad:
    """The model that a program plays, its batch, and the times that were declared of it."""

    name: str
    latency: str  # as gpuwright-serve takes it: 1:10=21,100=8;8:22
    largest_batch: int
    batch: int = 1  # that it ran last

    @classmethod
    def read(cls, words: Any) -> PlayedLoad:
        """Reads a program's message; raises ValueError."""
        if not isinstance(words, dict):
            raise ValueError("a load is an object")
        name, latency, largest = words.get("name"), words.get("latency"), words.get("largestBatch")
        if not isinstance(name, str) or not isinstance(latency, str) or not isinstance(largest, int):
            raise ValueError("a load has name, latency and largestBatch")
        if len(name) > LONGEST_NAME or len(latency) > LONGEST_LATENCY or not 1 <= largest <= MOST_BATCH:
            raise ValueError("name, latency or largestBatch is out of range")
        return cls(name, latency, largest)

    @property
    def words(self) -> dict[str, Any]:
        return {"name": self.name, "latency": self.latency, "largestBatch": self.largest_batch}


@dataclass(frozen=True, slots=True)
class BusyLoad:
    """A load on its share of the SMs, and the part of the time in which it is busy."""

    load: PlayedLoad
    sm_percent: float
    busy: float


class LoadSpeeds(Protocol):
    """The truth of a simulated GPU."""

    def times_ms(self, mine: BusyLoad, others: Sequence[BusyLoad], clock_share: float) -> Mapping[int, float]:
        """Returns how long a batch takes, by its size; between two sizes the time is linear."""
