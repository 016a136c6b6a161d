"""Believes how long requests of language models are, by the tokens that gateways count, in classes.

A class is the declared mean times a power of STEP, and covers what was measured. Until something else is sure, the
declared mean is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from agents.contract.gateways import LengthTotals
from solvers.llm.iteration import TokenLengths, log_normal

KEPT_ANSWERS = 4000.0  # about so many recent answers count
FEWEST_ANSWERS = 500.0  # lengths are skewed: the mean of fewer strays further than its standard error says
SURE_ERRORS = 4.0  # standard errors of a mean that chance does not reach
STEP = 1.1  # from class to class
ABOVE, BELOW = 1.05, STEP * 1.1  # a class holds up to so much above it, and down to so much below it
HELD_SECONDS = 1800.0  # a class falls once the mean has been below for so long
LEAST, MOST = 0.25, 4.0  # of the declared mean


@dataclass(slots=True)
class _MeanClass:
    """The class of one mean, as a multiple of the declared one."""

    factor: float = 1.0
    _below_since: float = math.inf
    _highest: float = 0.0  # measured since then

    def look(self, share: float, error: float, now: float) -> None:
        """Compares the class with a measured multiple of the declared mean."""
        if share > self.factor * ABOVE and share - error > self.factor:
            self.factor = _class_of(share)
        if share >= self.factor / BELOW or share + error >= self.factor:
            self._below_since, self._highest = math.inf, 0.0
            return
        self._below_since = min(self._below_since, now)
        self._highest = max(self._highest, share)
        if now - self._below_since >= HELD_SECONDS:
            self.factor = _class_of(self._highest)
            self._below_since, self._highest = math.inf, 0.0


@dataclass(slots=True)
class LengthBelief:
    """The classes of a service's input and output, and what they were measured from."""

    _answers: float = 0.0
    _tokens_in: float = 0.0
    _tokens_out: float = 0.0
    _declared: TokenLengths | None = None
    _input: _MeanClass = field(default_factory=_MeanClass)
    _output: _MeanClass = field(default_factory=_MeanClass)

    def add(self, more: LengthTotals) -> None:
        """Takes answers that were counted since the last report."""
        if not more.answers:
            return
        weight = min(1.0, KEPT_ANSWERS / more.answers)
        keep = max(0.0, 1.0 - more.answers * weight / KEPT_ANSWERS)
        self._answers = self._answers * keep + more.answers * weight
        self._tokens_in = self._tokens_in * keep + more.tokens_in * weight
        self._tokens_out = self._tokens_out * keep + more.tokens_out * weight

    def means(self, declared: TokenLengths | None, now: float) -> tuple[float, float]:
        """Returns the mean tokens of a prompt and of an answer to plan for; 0: as declared."""
        if declared != self._declared:
            self._declared, self._input, self._output = declared, _MeanClass(), _MeanClass()
        if declared is None:
            return 0.0, 0.0
        if self._answers >= FEWEST_ANSWERS:
            self._input.look(self._tokens_in / self._answers / declared.input_mean, self._error(*declared.input), now)
            self._output.look(
                self._tokens_out / self._answers / declared.output_mean, self._error(*declared.output), now
            )
        return _believe(declared.input_mean, self._input), _believe(declared.output_mean, self._output)

    def _error(self, mean: float, p95: float) -> float:
        """Returns by how much of the declared mean chance may move the mean of the answers that count."""
        _, deviation = log_normal(mean, p95)
        return SURE_ERRORS * math.sqrt(math.expm1(deviation**2) / self._answers)


def _class_of(share: float) -> float:
    """Returns the least class that covers a multiple of the declared mean."""
    return STEP ** math.ceil(math.log(min(max(share, LEAST), MOST), STEP) - 1e-9)


def _believe(mean: float, known: _MeanClass) -> float:
    return 0.0 if known.factor == 1.0 else max(1.0, mean * known.factor)
