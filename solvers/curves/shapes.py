"""The physics of latency over batch, SM% and clock: parametric forms, before anything unexplained is added.

Each takes parameters with a normal prior, and returns log(latency). A process models what a form leaves unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Protocol

import numpy as np

from solvers.curves.observations import CurvePlaces, Floats, Observations


@dataclass(frozen=True)
class Value:
    """log(latency), and by how much it grows when the GPU's part or the launching of kernels grows by a small share."""

    logarithm: Floats
    running: Floats
    launching: Floats


@dataclass(frozen=True)
class Prior:
    """Each parameter's value and deviation before the first measurement."""

    centre: Floats
    deviation: Floats


class Shape(Protocol):
    """A parametric form."""

    @property
    def name(self) -> str: ...

    def prior(self, observed: Observations) -> Prior: ...

    def starts(self, prior: Prior) -> list[Floats]:
        """Returns where the search for the parameters begins."""
        ...

    def value(self, parameters: Floats, at: CurvePlaces) -> Value:
        """Takes each parameter as a number, or as an array that broadcasts against the places."""
        ...


class Phases:
    """InSS, section 4.1: transfer + max(scheduling, running).

    Transfer grows with the batch. Launching the kernels takes the host the same time whatever the batch. Running takes
    a fixed part and a part for each request, both divided by the SMs. The host launches ahead, so the slower of the two
    counts, and a power mean rounds the corner between them; where nothing overlaps the power is 1, and they add up. The
    clock slows the GPU's part alone.
    """

    name = "phases"

    def prior(self, observed: Observations) -> Prior:
        at = observed.places
        heaviest = int(np.argmax(at.batch / at.share))
        request = float(observed.logarithms[heaviest]) + log(at.share[heaviest] / 100.0 / at.batch[heaviest])
        launch = float(observed.logarithms.min())
        # log: transfer of a request, launch, fixed work, work of a request; exponents of SM% and clock; log: corner
        centre = np.array([request - 3.0, launch, request - 1.0, request, 1.0, 1.0, log(4.0)])
        return Prior(centre, np.array([2.0, 1.5, 2.0, 1.5, 0.15, 0.3, 1.0]))

    def starts(self, prior: Prior) -> list[Floats]:
        bound_by_fixed_work = prior.centre + np.array([0.0, 0.0, 2.0, -0.5, 0.0, 0.0, 0.0])
        bound_by_transfer = prior.centre + np.array([1.5, -1.0, 0.0, -0.5, 0.0, 0.0, 0.0])
        return [prior.centre, bound_by_fixed_work, bound_by_transfer]

    def value(self, parameters: Floats, at: CurvePlaces) -> Value:
        transfer, launch, fixed, request, share, clock, corner = parameters
        power = np.exp(corner)
        running = np.logaddexp(fixed, request + np.log(at.batch))
        running = running - share * np.log(at.share / 100.0) + clock * np.log(at.slowing)
        longer = np.logaddexp(power * launch, power * running) / power
        whole = np.logaddexp(transfer + np.log(at.batch), longer)
        part = np.exp(longer - whole)
        return Value(whole, part * np.exp(power * (running - longer)), part * np.exp(power * (launch - longer)))


class TwoPieces:
    """Mudi, latency quantification: for each batch two lines over SM% that meet at a cut-off.

    The cut-off moves with a power of the batch. Latency there is linear in the batch, and slopes are shares of it.
    """

    name = "two pieces"

    def prior(self, observed: Observations) -> Prior:
        at = observed.places
        largest = int(np.argmax(at.batch))
        low, high = float(observed.logarithms.min()), float(observed.logarithms[largest])
        request = high - log(at.batch[largest]) - 1.0
        # log: latency of no request, of each request, cut-off; its exponent; log of both slopes; exponent of the clock
        centre = np.array([low, request, log(30.0), 0.3, 0.0, -2.0, 1.0])
        return Prior(centre, np.array([1.5, 1.5, 1.0, 0.5, 1.0, 1.0, 0.3]))

    def starts(self, prior: Prior) -> list[Floats]:
        early = prior.centre + np.array([0.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0])
        return [prior.centre, early]

    def value(self, parameters: Floats, at: CurvePlaces) -> Value:
        none, request, cut, exponent, steep, flat, clock = parameters
        at_cut = np.logaddexp(none, request + np.log(at.batch))
        cut_off = np.minimum(np.exp(cut + exponent * np.log(at.batch)), 100.0)
        below = np.exp(steep) * np.maximum(cut_off / at.share - 1.0, 0.0) * at.share / cut_off
        above = np.exp(flat) * np.maximum(at.share - cut_off, 0.0) / 100.0
        line = at_cut + np.log1p(below) - np.log1p(above) + clock * np.log(at.slowing)
        return Value(line, np.ones_like(line), np.zeros_like(line))


class PowerLaw:
    """Latency as a product of powers of batch, SM% and clock."""

    name = "power law"

    def prior(self, observed: Observations) -> Prior:
        return Prior(np.array([float(observed.logarithms.mean()), 0.5, 0.5, 1.0]), np.array([3.0, 0.5, 0.5, 0.3]))

    def starts(self, prior: Prior) -> list[Floats]:
        return [prior.centre]

    def value(self, parameters: Floats, at: CurvePlaces) -> Value:
        middle, batch, share, clock = parameters
        line = middle + batch * np.log(at.batch) - share * np.log(at.share / 100.0) + clock * np.log(at.slowing)
        return Value(line, np.ones_like(line), np.zeros_like(line))
