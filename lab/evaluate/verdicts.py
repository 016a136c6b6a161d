"""Judges a claim by three questions, each on its own.

Does the paper's planner reach the paper's figure here? Does ours? Is ours better than every other planner, at no higher
price and no lower attainment, so surely that the 95 % interval of their ratio over the seeds excludes 1? One seed has
no interval: the third question is then not decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, isfinite, log, sqrt
from statistics import fmean, stdev
from typing import Any

from lab.evaluate.claims import AT_LEAST, AT_MOST, BEST, PRINTED, PaperClaim, read_claims
from solvers.planners.names import JOINT

DIGITS = 6
YES, NO = "yes", "no"
NOT_DECIDED = "not decided"  # by so few seeds
NO_FIGURE = "no figure"  # of the paper that would be comparable here
OUT_OF_REACH = "out of reach"  # of any planner, by what is offered
ANSWERS = (YES, NO, NOT_DECIDED, NO_FIGURE, OUT_OF_REACH)
QUESTIONS = ("paper_planner_reaches", "ours_reaches", "ours_is_best")
SURE_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class PlannerValue:
    """What a planner got in one seed, what its fleet cost, and the share of requests within their SLO.

    Price and attainment are None where nothing is held or served, or where both are the same for all by definition.
    """

    value: float
    price_per_hour: float | None = None
    attained_share: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """A figure by seed and planner, and the best value that any planner could have had, on average over the seeds."""

    by_seed: Sequence[Mapping[str, PlannerValue]]
    best_possible: float | None = None  # None: nothing bounds it but 0


@dataclass(frozen=True, slots=True)
class RivalComparison:
    """Ours against one other planner, seed by seed; a ratio above 1 is in our favour."""

    ratio: float
    low: float
    high: float
    is_dearer: bool
    attains_less: bool
    seeds: int

    @property
    def answer(self) -> str:
        if self.seeds < 2:
            return NOT_DECIDED
        if self.is_dearer or self.attains_less or self.high <= 1:
            return NO
        return YES if self.low > 1 else NOT_DECIDED

    def figures(self) -> dict[str, Any]:
        return {
            "ratio": _rounded(self.ratio),
            "interval": [_rounded(self.low), _rounded(self.high)] if self.seeds > 1 else None,
            "ours_is_dearer": self.is_dearer,
            "ours_attains_less": self.attains_less,
            "ours_is_better": self.answer,
        }


@dataclass(frozen=True, slots=True)
class EvaluationClaim:
    """A claim of a paper beside what was measured."""

    paper: PaperClaim
    measured: MeasuredFigure

    @property
    def values(self) -> dict[str, float]:
        """Returns the mean over the seeds by planner."""
        return {name: fmean(found[name].value for found in self.measured.by_seed) for name in self.measured.by_seed[0]}

    @property
    def best_baseline(self) -> float:
        """Returns the best value of a planner that is neither ours nor the paper's."""
        others = [value for name, value in self.values.items() if name not in (JOINT, self.paper.planner)]
        return max(others) if self.paper.is_more_better else min(others)

    @property
    def paper_baselines(self) -> dict[str, float]:
        """Returns the value of the paper's own baseline, by each reading of it."""
        values = self.values
        if self.paper.baselines == (BEST,):
            return {BEST: self.best_baseline}
        return {name: values[name] for name in self.paper.baselines}

    def ratio(self, value: float) -> float:
        """Returns the paper's baseline to a value, inverted where more is better: the least among its readings."""
        return min(self._advantage(value, baseline) for baseline in self.paper_baselines.values())

    @property
    def largest_ratio(self) -> float:
        """Returns the ratio of the best value that any planner could have had here."""
        best = self.measured.best_possible
        return inf if best is None else self.ratio(best)

    def reaches(self, planner: str) -> str:
        """Answers whether a planner reaches the paper's figure here."""
        rule, figure, value = self.paper.rule, self.paper.figure, self.values[planner]
        if rule == PRINTED:
            return NO_FIGURE
        if rule == AT_MOST:
            return YES if value <= figure else NO
        reached, most = (value, self.measured.best_possible) if rule == AT_LEAST else (
            self.ratio(value), self.largest_ratio
        )  # fmt: skip
        if most is not None and most < figure:
            return OUT_OF_REACH
        return YES if reached >= figure else NO

    def compare(self, rival: str) -> RivalComparison:
        """Compares ours with another planner by the pairs of each seed."""
        pairs = [(found[JOINT], found[rival]) for found in self.measured.by_seed]
        ratios = [self._advantage(ours.value, theirs.value) for ours, theirs in pairs]
        prices = [(ours.price_per_hour, theirs.price_per_hour) for ours, theirs in pairs]
        attained = [(theirs.attained_share, ours.attained_share) for ours, theirs in pairs]
        return RivalComparison(*ratio_interval(ratios), _is_more(prices), _is_more(attained), len(pairs))

    @property
    def rivals(self) -> dict[str, RivalComparison]:
        return {name: self.compare(name) for name in self.measured.by_seed[0] if name != JOINT}

    @property
    def ours_is_best(self) -> str:
        """Answers whether ours is better than every other planner."""
        answers = {found.answer for found in self.rivals.values()}
        return NO if NO in answers else NOT_DECIDED if NOT_DECIDED in answers else YES

    @property
    def verdicts(self) -> dict[str, str]:
        return dict(
            zip(QUESTIONS, (self.reaches(self.paper.planner), self.reaches(JOINT), self.ours_is_best), strict=True)
        )

    def _advantage(self, value: float, other: float) -> float:
        """Returns how many times as good a value is as another; two that are equal are 1, and so are two zeros."""
        above, below = (value, other) if self.paper.is_more_better else (other, value)
        if above == below:
            return 1.0
        return above / below if below > 0 else inf

    def figures(self) -> dict[str, Any]:
        """Returns the claim as the JSON has it; a ratio without a finite value is null."""
        paper, values = self.paper, self.values
        return {
            "id": paper.row,
            "metric": paper.metric,
            "rule": paper.rule,
            "paper": paper.comparable_figure,
            "printed": paper.figure,
            "verdicts": self.verdicts,
            "paper_baseline": {name: round(value, DIGITS) for name, value in self.paper_baselines.items()},
            "best_baseline": round(self.best_baseline, DIGITS),
            "reproduced": round(values[paper.planner], DIGITS),
            "ours": round(values[JOINT], DIGITS),
            "reproduced_ratio": _rounded(self.ratio(values[paper.planner])),
            "ratio": _rounded(self.ratio(values[JOINT])),
            "largest_ratio": _rounded(self.largest_ratio),
            "rivals": {name: found.figures() for name, found in self.rivals.items()},
            "truth": paper.truth,
            "seeds": len(self.measured.by_seed),
            "note": paper.note,
            "because": paper.because,
            "miss": paper.miss if self.is_missed else "",
        }

    @property
    def is_missed(self) -> bool:
        return any(answer in (NO, OUT_OF_REACH) for answer in self.verdicts.values())


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Returns the geometric mean of ratios and its 95 % interval, by Student's t of their logarithms.

    Where a ratio has no logarithm, as one side of it is 0, the smallest and the largest stand for the interval.
    """
    if not all(ratio > 0 and isfinite(ratio) for ratio in ratios):
        low, high = min(ratios), max(ratios)
        return (low if low == high else inf if high == inf else 0.0), low, high
    from scipy.stats import t

    logs = [log(ratio) for ratio in ratios]
    mean = fsum(logs) / len(logs)
    if len(logs) < 2:
        return exp(mean), 0.0, inf
    width = float(t.ppf((1 + SURE_SHARE) / 2, len(logs) - 1)) * stdev(logs) / sqrt(len(logs))
    return exp(mean), exp(mean - width), exp(mean + width)


def judge_claims(system: str, measured: Mapping[str, MeasuredFigure]) -> list[EvaluationClaim]:
    """Returns the claims of a system's paper; each names a measured figure, and each figure has a claim."""
    claims = [EvaluationClaim(paper, measured[paper.measures]) for paper in read_claims(system)]
    if unclaimed := set(measured) - {claim.paper.measures for claim in claims}:
        raise ValueError(f"no claim of {system} is about {', '.join(sorted(unclaimed))}")
    return claims


def count_verdicts(claims: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Returns for each question how many claims have each answer."""
    counts = {name: Counter(claim["verdicts"][name] for claim in claims) for name in QUESTIONS}
    return {name: {answer: found[answer] for answer in ANSWERS if found[answer]} for name, found in counts.items()}


def measured_alike(by_seed: Sequence[Mapping[str, float]], best_possible: float | None = None) -> MeasuredFigure:
    """Returns a figure of planners that hold the same fleet, and whose attainment is the same or is the figure."""
    values = [{name: PlannerValue(value) for name, value in found.items()} for found in by_seed]
    return MeasuredFigure(values, best_possible)


def _is_more(pairs: Sequence[tuple[float | None, float | None]]) -> bool:
    """Returns whether the first are more than the second, on average; where there are none, they are not."""
    known = [(first, second) for first, second in pairs if first is not None and second is not None]
    return fsum(first for first, _ in known) > fsum(second for _, second in known)


def _rounded(value: float) -> float | None:
    return round(value, DIGITS) if isfinite(value) else None
