"""The sharing problem: the SMs each service on one GPU needs at its given batch (Mudi, dynamic resource scaling)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import TypeAlias

Curve: TypeAlias = tuple[tuple[int, float], ...]  # (SM%, value), SM% rising, linear between points


class WrongSharing(ValueError):
    """A GPU or a resident with an invalid number or name."""


@dataclass(frozen=True, slots=True)
class SharingResident:
    """A service on the GPU, at a batch that was chosen before.

    Mudi's rule is (W / b) P(b, d, psi) <= SLO. With W = rate x SLO, the requests outstanding by Little's law, the SLO
    cancels out and the rule only says that the server keeps up; a W under one batch even lets a batch outlast the SLO.
    `batches_at_least` = 1 counts the batch that holds a request as a whole one, so that the SLO holds as well.
    """

    name: str
    batch: int
    latency_ms: Curve  # of one batch alone on the GPU; never rising with SM%
    slo_ms: float
    rate_per_second: float
    outstanding: float | None = None  # W; None: rate x SLO
    batches_at_least: float = 0.0  # 0: the rule as published
    pressure: Curve = ((100, 0.0),)  # on its neighbours; flat beyond its ends
    sensitivity: float = 0.0  # slowdown per unit of its neighbours' pressure

    def __post_init__(self) -> None:
        what = f"resident {self.name}"
        if self.batch < 1:
            raise WrongSharing(f"{what}: batch {self.batch} is below 1")
        _check_above_zero(f"{what}: sloMs", self.slo_ms)
        _check_above_zero(f"{what}: ratePerSecond", self.rate_per_second)
        if self.outstanding is not None:
            _check_above_zero(f"{what}: outstanding", self.outstanding)
        for name, value in (("batchesAtLeast", self.batches_at_least), ("sensitivity", self.sensitivity)):
            if not (isfinite(value) and value >= 0):
                raise WrongSharing(f"{what}: {name} {value:g} is not a finite number of 0 or more")
        _curve(f"{what}: latencyMs", self.latency_ms)
        _curve(f"{what}: pressure", self.pressure)
        for percent, exec_ms in self.latency_ms:
            _check_above_zero(f"{what}: latencyMs at {percent} %", exec_ms)
        for (low, slow), (high, fast) in pairwise(self.latency_ms):
            if fast > slow:
                raise WrongSharing(f"{what}: latencyMs rises from {slow:g} at {low} % to {fast:g} at {high} %")
        for percent, pressure in self.pressure:
            if pressure < 0:
                raise WrongSharing(f"{what}: pressure {pressure:g} at {percent} % is below 0")

    @property
    def requests_outstanding(self) -> float:
        return self.rate_per_second * self.slo_ms / 1000 if self.outstanding is None else self.outstanding

    @property
    def most_exec_ms(self) -> float:
        """The time a batch may take next to its neighbours: SLO / (W / b)."""
        return self.slo_ms / max(self.requests_outstanding / self.batch, self.batches_at_least)

    @property
    def least_percent(self) -> int:
        return self.latency_ms[0][0]

    @property
    def most_percent(self) -> int:
        return self.latency_ms[-1][0]

    @property
    def presses_no_less_with_more(self) -> bool:
        """True if its pressure never falls with SM%; if so for all, a single answer is smallest in every component."""
        return all(before <= after for (_, before), (_, after) in pairwise(self.pressure))


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """The residents that need SM% on one GPU, next to others (training, say) whose SM% are fixed."""

    residents: tuple[SharingResident, ...]
    other_pressure: float = 0.0  # of those whose SM% are fixed
    free_percent: int = 100

    def __post_init__(self) -> None:
        names = [resident.name for resident in self.residents]
        for name in sorted(set(names)):
            if names.count(name) > 1:
                raise WrongSharing(f"resident {name} occurs {names.count(name)} times")
        if not 0 <= self.free_percent <= 100:
            raise WrongSharing(f"freePercent {self.free_percent} is outside 0..100")
        if not (isfinite(self.other_pressure) and self.other_pressure >= 0):
            raise WrongSharing(f"otherPressure {self.other_pressure:g} is not a finite number of 0 or more")


def _check_above_zero(what: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise WrongSharing(f"{what} {value:g} is not a finite number over 0")


def _curve(what: str, curve: Iterable[tuple[int, float]]) -> None:
    percents = [percent for percent, _ in curve]
    if not percents:
        raise WrongSharing(f"{what} has no points; at least one is needed")
    if not 1 <= percents[0] <= percents[-1] <= 100:
        raise WrongSharing(f"{what} reaches from {percents[0]} % to {percents[-1]} %; 1..100 is allowed")
    if percents != sorted(set(percents)):
        raise WrongSharing(f"{what} has SM% that do not rise: {percents}")
    for percent, value in curve:
        if not isfinite(value):
            raise WrongSharing(f"{what} at {percent} % is {value}; a finite number is needed")
