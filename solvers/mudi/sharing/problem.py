"""One GPU shared by services whose batches are given: how many SMs does each need? (Mudi, dynamic resource scaling)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import TypeAlias

Curve: TypeAlias = tuple[tuple[int, float], ...]  # (SM%, value), SM% rising, linear between points


class WrongSharing(ValueError):
    """A number or a name that means nothing here."""


@dataclass(frozen=True, slots=True)
class SharingResident:
    """A service on the GPU, at a batch already chosen.

    Mudi's rule is (W / b) P(b, d, psi) <= SLO. With W = rate x SLO, the requests outstanding by Little's law, the SLO
    cancels out and the rule says that the server keeps up; a W under one batch even lets a batch outlast the SLO.
    `batches_at_least` = 1 counts the batch a request rides in as a whole one, so that the SLO holds by itself too.
    """

    name: str
    batch: int
    latency_ms: Curve  # of one batch alone on the GPU; never rising with SM%
    slo_ms: float
    rate_per_second: float
    outstanding: float | None = None  # W; None: rate x SLO
    batches_at_least: float = 0.0  # 0: the rule as printed
    pressure: Curve = ((100, 0.0),)  # on its neighbours; flat beyond its ends
    sensitivity: float = 0.0  # slowdown per unit of its neighbours' pressure

    def __post_init__(self) -> None:
        what = f"resident {self.name}"
        if self.batch < 1:
            raise WrongSharing(f"{what}: batch {self.batch} is below 1")
        _over_zero(f"{what}: sloMs", self.slo_ms)
        _over_zero(f"{what}: ratePerSecond", self.rate_per_second)
        if self.outstanding is not None:
            _over_zero(f"{what}: outstanding", self.outstanding)
        for name, value in (("batchesAtLeast", self.batches_at_least), ("sensitivity", self.sensitivity)):
            if not (isfinite(value) and value >= 0):
                raise WrongSharing(f"{what}: {name} {value:g} is not a finite number of 0 or more")
        _curve(f"{what}: latencyMs", self.latency_ms)
        _curve(f"{what}: pressure", self.pressure)
        for percent, exec_ms in self.latency_ms:
            _over_zero(f"{what}: latencyMs at {percent} %", exec_ms)
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
        """How long a batch may take among its neighbours: SLO / (W / b)."""
        return self.slo_ms / max(self.requests_outstanding / self.batch, self.batches_at_least)

    @property
    def least_percent(self) -> int:
        return self.latency_ms[0][0]

    @property
    def most_percent(self) -> int:
        return self.latency_ms[-1][0]

    @property
    def presses_no_less_with_more(self) -> bool:
        """Whether its pressure never falls with SM%: then a smallest answer exists in every component at once."""
        return all(before <= after for (_, before), (_, after) in pairwise(self.pressure))


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """Those to be given SM% on one GPU, beside what keeps the SM% it has (training, say)."""

    residents: tuple[SharingResident, ...]
    other_pressure: float = 0.0  # of what keeps its SM%
    free_percent: int = 100

    def __post_init__(self) -> None:
        names = [resident.name for resident in self.residents]
        for name in sorted(set(names)):
            if names.count(name) > 1:
                raise WrongSharing(f"resident {name} is there {names.count(name)} times")
        if not 0 <= self.free_percent <= 100:
            raise WrongSharing(f"freePercent {self.free_percent} is outside 0..100")
        if not (isfinite(self.other_pressure) and self.other_pressure >= 0):
            raise WrongSharing(f"otherPressure {self.other_pressure:g} is not a finite number of 0 or more")


def two_piece(first_slope: float, second_slope: float, cut_percent: int, cut_ms: float, least: int, most: int) -> Curve:
    """Mudi's latency curve: slopes in ms per SM% before and after the cut-off, and the latency there."""
    percents = sorted({least, cut_percent, most})
    slopes = [first_slope if percent <= cut_percent else second_slope for percent in percents]
    return tuple((p, cut_ms + slope * (p - cut_percent)) for p, slope in zip(percents, slopes, strict=True))


def _over_zero(what: str, value: float) -> None:
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
