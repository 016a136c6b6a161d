"""Reads gavel's training throughput, alone and in pairs on one GPU, as runs beside neighbours."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from lab.data.missing_data import DataMissing
from lab.interference.traits import Traits
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

FILE = Path("gavel") / "simulation_throughputs.json"
TYPES = ("v100", "p100", "k80")


@dataclass(frozen=True)
class GavelTable:
    """Steps a second alone by (model, GPU type), and slowdowns in pairs by GPU type."""

    alone: dict[tuple[str, str], float]
    pairs: dict[str, tuple[SlowdownObservation, ...]]

    @property
    def models(self) -> list[str]:
        return sorted({model for model, _ in self.alone})

    @property
    def families(self) -> list[str]:
        return sorted({family(model) for model in self.models})

    def traits(self, gpu_type: str) -> Traits:
        """Returns what runs alone tell: the time of a step, and the speed on one GPU type against the next."""
        speeds = {model: [log(self.alone[model, each]) for each in TYPES] for model in self.models}
        own = TYPES.index(gpu_type)
        return Traits(
            {model: (-each[own], each[0] - each[1], each[1] - each[2]) for model, each in speeds.items()},
            {model: family(model) for model in speeds},
            # A stand-in for counts of compute-bound and memory-bound kernels, which the table lacks.
            {model: each[0] - each[2] for model, each in speeds.items()},
        )


def family(model: str) -> str:
    """Returns the model's name without its batch size."""
    return model.split(" (")[0]


def read_gavel(data: Path) -> GavelTable:
    """Reads jobs on one GPU; a pair with throughput 0 did not fit into memory."""
    path = data / FILE
    if not path.exists():
        raise DataMissing(f"{path} is missing")
    table = json.loads(path.read_text())
    alone = {
        (model, gpu_type): row["null"] for gpu_type in TYPES for model, row in _single(table[gpu_type]) if row["null"]
    }
    pairs = {}
    for gpu_type in TYPES:
        pairs[gpu_type] = tuple(
            SlowdownObservation(SharedRun(model, 100, (Neighbour(other),)), alone[model, gpu_type] / both[0])
            for model, row in _single(table[gpu_type])
            for other, both in _single(row)
            if both[0] > 0
        )
    return GavelTable(alone, pairs)


def _single(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the entries of jobs on a single GPU."""
    for key, value in row.items():
        if key != "null":
            model, gpus = ast.literal_eval(key)
            if gpus == 1:
                yield model, value
