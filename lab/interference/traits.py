"""The traits of models: what is known of them without neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from solvers.interference.observation import WrongObservation


@dataclass(frozen=True)
class Traits:
    """The traits of models without neighbours: numbers from runs alone or from layers, and who is akin."""

    numbers: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by model, all of one length
    kin: Mapping[str, str] = field(default_factory=dict)  # model -> its family, as a variant's model
    compute_to_memory: Mapping[str, float] = field(default_factory=dict)  # OLTunes (1), or a stand-in for it

    def __post_init__(self) -> None:
        if len({len(numbers) for numbers in self.numbers.values()}) > 1:
            raise WrongObservation("traits differ in how many numbers they have")

    def family(self, model: str) -> str:
        return self.kin.get(model, model)
