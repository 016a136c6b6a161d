"""The margin of a plan over the load that is surely there, learned so that few hours overspend their error budget.

Each hour tells the margin that would have kept it within its budget. The next one is a quantile of these, at a level
that follows the hours that did overspend (adaptive conformal inference; docs/forecast.md has the theorem). A new
service has no such hours yet: its margin is at least what would have kept the pace of the last hour so far.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from solvers.forecast.samples import Sample
from solvers.forecast.settings import ForecastTuning

RISK = 0.05  # share of hours, where a manifest says none
STEP_SHARE = 0.01  # the theorem's gamma: by this times (risk - missed) the level moves each hour
MOST_MARGIN = 0.5  # a share; loads that rise further are left to the fast lane
HALF_LIFE_HOURS = 24.0  # in which a past hour comes to count half
FORGET = 0.5 ** (1.0 / HALF_LIFE_HOURS)
CALM_FACTOR = 1.75  # over the risk: so many calm hours are assumed before the first, so that one alone says little
KEPT_HOURS = 7 * 24
SCORE_STEPS = 10_000.0  # of a share: scores are rounded up, as a snapshot has them
HOUR_SECONDS = 3600.0
LEAST_SECONDS, MOST_SECONDS = 30.0, 300.0  # of a span whose load is compared with its plan,
TELLING_REQUESTS = 1000.0  # which within these should have so many requests, as fewer scatter
PACE_SECONDS = 600.0  # whose budget may be spent at once
MOST_PACE = 0.25  # a share: so far the pace of the last hour alone raises a margin
TOLERATED_SHARE = ForecastTuning().sudden_band  # by which a rate may exceed its plan for a while, beside chance
LOAD_SHARE = 0.5  # of an error budget that load above the plan may spend; hand-overs and faults spend the rest
REACTION_SECONDS = 10.0  # from a decision to the start of its copies, and from their last warm-up to their routes


@dataclass(frozen=True, slots=True)
class MarginRules:
    """The promise that a margin serves."""

    risk: float = RISK  # share of hours whose error budget may be overspent
    budget: float = 0.02  # share of an hour's requests that may be above the plan
    start_seconds: float = 20.0  # until a raised plan is ready
    ahead_seconds: float = 50.0  # that, and a cycle before


def make_margin_rules(risk: float, percentile: float, start_seconds: float, cycle_seconds: float) -> MarginRules:
    """Returns the rules of a service whose copies start in so many seconds, and which is planned for every cycle."""
    ready = start_seconds + REACTION_SECONDS
    return MarginRules(risk, LOAD_SHARE * (1.0 - percentile / 100.0), ready, cycle_seconds + ready)


@dataclass(frozen=True, slots=True)
class LoadedSpan:
    """The requests of some seconds, as many as were planned for in time, and that number without its margin."""

    seconds: float
    requests: float
    ready: float
    bare: float


def move_level(level: float, risk: float, missed: bool) -> float:
    """Returns the level after one more hour: lower by much if it missed, higher by a little if not."""
    return level + STEP_SHARE * (risk - missed)


def upper_quantile(scores: Iterable[tuple[float, float]], level: float) -> float:
    """Returns the least score above which lies no more than `level` of the weight, of pairs of score and weight.

    It is infinite from level 0 down, and 0 from level 1 up.
    """
    if level <= 0 or level >= 1:
        return math.inf if level <= 0 else 0.0
    ordered = sorted(scores, reverse=True)
    allowed = level * sum(weight for _, weight in ordered)
    for score, weight in ordered:
        allowed -= weight
        if allowed < 0:
            return score
    return 0.0


def needed_margin(spans: Sequence[LoadedSpan], most_above: float) -> float:
    """Returns the least margin with which no more than so many requests are above the plan; 0 or more."""
    if sum(span.requests - span.bare for span in spans if span.requests > span.bare) <= most_above:
        return 0.0
    # A span's load is above plans with less than its own ratio as margin, by its bare requests for each unit less.
    ratios = sorted(((span.requests / span.bare - 1.0, span.bare) for span in spans), reverse=True)
    above = slope = 0.0
    margin = ratios[0][0] if ratios else 0.0
    for ratio, bare in ratios:
        if above + slope * (margin - ratio) > most_above:
            break
        above += slope * (margin - ratio)
        slope, margin = slope + bare, ratio
    if slope > 0:
        margin -= (most_above - above) / slope
    return max(0.0, margin)


@dataclass(frozen=True, slots=True)
class MarginScores:
    """What a margin is learned from: the margins that hours would have needed, where they needed any."""

    hours: int = 0
    needed: tuple[tuple[int, float], ...] = ()  # hours ago, and the margin
    risk: float = RISK
    debt: float = 0.0  # at that risk; at another one it is in proportion
    pace: float = 0.0  # the margin that the last hour needed, as far as it went

    def margin(self, risk: float) -> float:
        """Returns the margin at this risk."""
        debt = self.debt * (risk / self.risk)
        scores = [(needed, FORGET**ago) for ago, needed in self.needed]
        calm = (1.0 - FORGET**self.hours) / (1.0 - FORGET) - sum(weight for _, weight in scores)
        assumed = CALM_FACTOR / risk
        scores.append((0.0, max(0.0, calm) + assumed * FORGET**self.hours))
        pace = self.pace if self.hours < assumed else 0.0  # by then the hours tell more
        return max(pace, min(MOST_MARGIN, upper_quantile(scores, risk - debt)))


def _round_up(margin: float) -> float:
    return math.ceil(margin * SCORE_STEPS - 1e-6) / SCORE_STEPS


EMPTY = LoadedSpan(0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Margin:
    """The margin of one service."""

    debt: float = 0.0  # by which missed hours have lowered the level below the risk; calm hours lower no margin further
    risk: float = RISK
    share: float = 0.0  # by which a plan exceeds the load that is surely there
    missed: deque[bool] = field(default_factory=lambda: deque(maxlen=KEPT_HOURS))
    _needed: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_HOURS))
    _hour: list[LoadedSpan] = field(default_factory=list)
    _is_missed: bool = False  # the hour that runs
    _running: float | None = None  # the margin that it needs, once it has missed
    _plans: deque[tuple[float, float, float]] = field(default_factory=deque)  # time, rate, rate without its margin
    _span: LoadedSpan = EMPTY
    _recent: deque[LoadedSpan] = field(default_factory=deque)  # of the last hour
    _pace: float = 0.0  # the margin that these needed

    def restore(self, scores: MarginScores, missed_hours: int, known_hours: int) -> None:
        """Continues from what another leader had learned."""
        hours = [0.0] * scores.hours
        for ago, needed in scores.needed:
            hours[-1 - ago] = needed
        self._needed.extend(hours)
        self.missed.extend([True] * missed_hours + [False] * (known_hours - missed_hours))
        self.debt, self.risk, self._pace = scores.debt, scores.risk, scores.pace
        self.share = scores.margin(scores.risk)

    def add(self, sample: Sample, planned: float, rules: MarginRules) -> None:
        """Takes the newest sample, and the rate that is planned for by then; only of what was planned it learns."""
        if planned <= 0:
            return
        self.debt, self.risk = self.debt * (rules.risk / self.risk), rules.risk
        self._plans.append((sample.at, planned, planned / (1.0 + self.share)))
        since = sample.at - sample.seconds / 2
        while self._plans[0][0] < since - rules.ahead_seconds:
            self._plans.popleft()
        ready = min(plan[1] for plan in self._plans if plan[0] >= since - rules.start_seconds)
        bare = min(plan[2] for plan in self._plans)
        span, seconds = self._span, sample.seconds
        self._span = span = LoadedSpan(
            span.seconds + seconds, span.requests + sample.requests, span.ready + ready * seconds,
            span.bare + bare * seconds,
        )  # fmt: skip
        is_telling = span.seconds >= LEAST_SECONDS and span.requests >= TELLING_REQUESTS
        if is_telling or span.seconds >= MOST_SECONDS:
            self._hour.append(span)
            self._span = EMPTY
            paced = self._pace
            is_news = self._judge(rules)
            self._keep_pace(span, rules)
            if is_news or self._pace != paced:
                self.share = self.scores().margin(rules.risk)

    def _judge(self, rules: MarginRules) -> bool:
        """Counts the hour as missed as soon as it has overspent what a whole one may, and learns from it at its end.

        Returns whether it tells something new.
        """
        spans = self._hour
        seconds = sum(span.seconds for span in spans)
        allowed = rules.budget * sum(span.requests for span in spans) * max(1.0, HOUR_SECONDS / seconds)
        above = sum(max(0.0, span.requests - span.ready) for span in spans)
        # At a debt as large as the risk the largest margin was given, so the hour shows no lack of it.
        if not self._is_missed and above > allowed and self.debt < rules.risk:
            self._is_missed = True
            self._move(rules, missed=True)
        is_over = seconds >= HOUR_SECONDS
        if not (is_over or self._is_missed):
            return False
        needed = needed_margin(spans, allowed)
        self._running = None if is_over else needed
        if not is_over:
            return True
        if not self._is_missed:
            self._move(rules, missed=False)
        self.missed.append(self._is_missed)
        self._needed.append(needed)
        self._hour, self._is_missed = [], False
        return True

    def _keep_pace(self, span: LoadedSpan, rules: MarginRules) -> None:
        """Finds the least margin that would have kept the last hour's pace; what rises higher is the fast lane's."""
        self._recent.append(span)
        seconds = sum(known.seconds for known in self._recent)
        while seconds - self._recent[0].seconds >= HOUR_SECONDS:
            seconds -= self._recent.popleft().seconds
        asked = sum(known.requests for known in self._recent)
        allowed = rules.budget * asked * max(1.0, PACE_SECONDS / seconds)
        reached = [
            replace(known, bare=(1 + math.hypot(TOLERATED_SHARE, max(1.0, known.requests) ** -0.5)) * known.bare)
            for known in self._recent
            if known.requests <= (1 + MOST_PACE) * known.bare
        ]
        self._pace = needed_margin(reached, allowed)

    def scores(self) -> MarginScores:
        """Returns what the margin is learned from, with the hour that runs if it has missed."""
        hours = [*self._needed, *([] if self._running is None else [self._running])]
        needed = tuple((ago, _round_up(need)) for ago, need in enumerate(reversed(hours)) if need > 0)
        return MarginScores(len(hours), needed, self.risk, self.debt, _round_up(self._pace))

    def _move(self, rules: MarginRules, missed: bool) -> None:
        self.debt = max(0.0, rules.risk - move_level(rules.risk - self.debt, rules.risk, missed))
