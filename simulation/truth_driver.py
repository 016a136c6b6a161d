"""The driver of a node's simulated GPUs that follow a physics: its programs slow each other as the physics says.

Usage: python -m simulation.truth_driver FOLDER --spec FILE

The file names the kinds of the GPUs, their declared type, the truth, and which model each program plays. Where the
physics does not know a program's model, the times that the program states give it its scale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

import msgspec

from agents.devices.simulated.driver import serve
from agents.devices.simulated.speeds import BusyLoad, PlayedLoad
from agents.programs.serve.profile import ProfileError, read_words
from simulation.limits import TruthName
from simulation.truth.fitting import KnownFigures, LoadKey
from simulation.truth.memory import recall
from simulation.truth.physics import Physics, RunningLoad
from simulation.truths import TruthOrder

MOST_NEIGHBOURS = 4  # of which each may be busy or idle; further ones count as always busy
START_MS = 1.0  # of a program that states no times


class DriverSpec(msgspec.Struct):
    """The GPUs of a node and their truth."""

    kinds: list[str]
    gpu_type: str
    idle_w: float
    max_w: float
    top_clock_mhz: float
    truth: TruthName
    seed: int
    data: str
    memory: str  # file with the scale of models
    plays: dict[str, tuple[str, str]]  # program -> model and variant


@dataclass
class PhysicalSpeeds:
    """Gives programs the times that a physics has for them."""

    physics: Physics
    gpu_type: str
    plays: Mapping[str, tuple[str, str]]

    def times_ms(self, mine: BusyLoad, others: Sequence[BusyLoad], clock_share: float) -> dict[int, float]:
        """Returns the mean time of a batch by its size, each neighbour busy for its part of the time."""
        key = self._key(mine.load)
        beside = [self._running(other) for other in sorted(others, key=lambda other: -other.busy)]
        clock_mhz = clock_share * self.physics.gpu(self.gpu_type).top_clock_mhz
        return {
            size: self._mean_ms(RunningLoad(key, size, mine.sm_percent), beside, clock_mhz)
            for size in _sizes(mine.load.largest_batch)
        }

    def _mean_ms(self, mine: RunningLoad, beside: Sequence[RunningLoad], clock_mhz: float) -> float:
        unsure, always = beside[:MOST_NEIGHBOURS], tuple(beside[MOST_NEIGHBOURS:])
        total = 0.0
        for busy in product((True, False), repeat=len(unsure)):
            chance = prod(load.busy if is_busy else 1 - load.busy for load, is_busy in zip(unsure, busy, strict=True))
            if chance > 0:
                active = tuple(neighbour for neighbour, is_busy in zip(unsure, busy, strict=True) if is_busy)
                total += chance * self.physics.together((mine, *active, *always), clock_mhz).times_ms[0]
        return total

    def _running(self, other: BusyLoad) -> RunningLoad:
        return RunningLoad(self._key(other.load), other.load.batch, other.sm_percent, other.busy)

    def _key(self, load: PlayedLoad) -> LoadKey:
        """Returns the model that a program plays; adds it to the physics if it is new there."""
        key = (*self.plays.get(load.name, (load.name, "")), self.gpu_type)
        if key not in self.physics:
            self.physics.add_model(key, KnownFigures(_points(load)))
        return key


def _points(load: PlayedLoad) -> dict[int, list[tuple[float, float]]]:
    """Returns the times that a program states of itself."""
    try:
        stated = read_words(load.latency)
    except ProfileError:
        stated = ()
    found = {int(batch): [(percent, ms) for percent, ms in curve if ms > 0] for batch, curve in stated}
    return {batch: curve for batch, curve in found.items() if batch >= 1 and curve} or {1: [(100.0, START_MS)]}


def _sizes(largest: int) -> list[int]:
    """Returns the powers of two up to a batch, and itself."""
    return sorted({largest, *(2**power for power in range(largest.bit_length()) if 2**power <= largest)})


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation.truth_driver", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spec", type=Path, required=True)
    args = parser.parse_args()
    spec = msgspec.json.decode(args.spec.read_bytes(), type=DriverSpec)
    physics = TruthOrder(spec.truth, spec.seed, Path(spec.data) if spec.data else None).physics()
    assert physics is not None
    recall(physics, Path(spec.memory))
    physics.add_gpu(spec.gpu_type, spec.idle_w, spec.max_w, spec.top_clock_mhz)
    return serve(args.folder, spec.kinds, PhysicalSpeeds(physics, spec.gpu_type, spec.plays))


if __name__ == "__main__":
    sys.exit(main())
