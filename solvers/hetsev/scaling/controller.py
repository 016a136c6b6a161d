"""HetSev's heuristic over time: it waits until a load has lasted, then acts once. A pure function of time and state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solvers.hetsev.scaling import greedy
from solvers.hetsev.scaling.problem import Actions, ScalingProblem


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """The thresholds at which the heuristic acts. The paper gives the 80 %; the two durations are ours."""

    saturation: float = 0.8
    held_seconds: float = 30.0
    cooldown_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class ScalingWatch:
    """The moments since which the load was too high, and since which an instance was spare or the last one stopped."""

    over_since: float | None = None
    spare_since: float | None = None


Starting = Callable[[ScalingProblem, dict[str, int], float], Actions]
"""Chooses what to start so that the load is within a saturation: problem, counts by type, saturation."""


def start_one_type(problem: ScalingProblem, counts: dict[str, int], saturation: float) -> Actions:
    """HetSev's selection policy: as many of the cheapest type as needed."""
    choice = greedy.out(problem, counts, saturation)
    return {choice[0]: choice[1]} if choice else {}


def decide(
    problem: ScalingProblem,
    watch: ScalingWatch,
    now_seconds: float,
    rules: ScalingRules = ScalingRules(),
    start: Starting = start_one_type,
) -> tuple[Actions, ScalingWatch]:
    """Returns the instances to start or stop now, and the state for the next decision.

    Scale out: when the saturation was over the threshold for the whole holding time, add what `start` chooses, so that
    it is back under it. Scale in: when an instance was spare for the whole cool-down, stop the dearest such instance
    and restart the cool-down. A running instance is never replaced by one of a cheaper type."""
    counts = {kind.name: kind.running for kind in problem.types}
    if greedy.capacity(problem, counts) * rules.saturation * (1 + greedy.EXACTLY) < problem.arrivals_per_second:
        since = now_seconds if watch.over_since is None else watch.over_since
        if now_seconds - since < rules.held_seconds:
            return {}, ScalingWatch(over_since=since)
        started = start(problem, counts, rules.saturation)
        if not started:  # nothing fits: the start stays overdue
            return {}, ScalingWatch(over_since=since)
        return started, ScalingWatch()
    name = greedy.dearest_removable(problem, counts, rules.saturation)
    if name is None:
        return {}, ScalingWatch()
    since = now_seconds if watch.spare_since is None else watch.spare_since
    if now_seconds - since < rules.cooldown_seconds:
        return {}, ScalingWatch(spare_since=since)
    return {name: -1}, ScalingWatch(spare_since=now_seconds)  # the next one must be spare for a cool-down as well
