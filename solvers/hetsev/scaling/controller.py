"""HetSev's heuristic over time: it waits until a load has lasted, then acts once. A pure function of now and since."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.hetsev.scaling import greedy
from solvers.hetsev.scaling.problem import ScalingProblem


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """When the heuristic acts. The paper gives the 80 %; the two durations are ours."""

    saturation: float = 0.8
    held_seconds: float = 30.0
    cooldown_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class ScalingWatch:
    """Since when the load has been too high, and since when an instance could have gone, or the last one went."""

    over_since: float | None = None
    spare_since: float | None = None


def decide(
    problem: ScalingProblem, watch: ScalingWatch, now_seconds: float, rules: ScalingRules = ScalingRules()
) -> tuple[dict[str, int], ScalingWatch]:
    """What to start or stop now, and what to remember until the next look.

    Out: the saturation has been over the threshold for the whole holding time; one type is added in the number that
    brings it back. In: an instance could have been missed for the whole cool-down; the dearest such one goes, and the
    cool-down begins anew. Nothing running is switched for a cheaper type."""
    counts = {kind.name: kind.running for kind in problem.types}
    if greedy.capacity(problem, counts) * rules.saturation < problem.arrivals_per_second:
        since = now_seconds if watch.over_since is None else watch.over_since
        if now_seconds - since < rules.held_seconds:
            return {}, ScalingWatch(over_since=since)
        choice = greedy.out(problem, counts, rules.saturation)
        if choice is None:  # nothing fits: it stays overdue
            return {}, ScalingWatch(over_since=since)
        return {choice[0]: choice[1]}, ScalingWatch()
    name = greedy.dearest_removable(problem, counts, rules.saturation)
    if name is None:
        return {}, ScalingWatch()
    since = now_seconds if watch.spare_since is None else watch.spare_since
    if now_seconds - since < rules.cooldown_seconds:
        return {}, ScalingWatch(spare_since=since)
    return {name: -1}, ScalingWatch(spare_since=now_seconds)  # the next one is missed anew before it goes, too
