"""Claim O4: kernels that share a GPU in pairs, chosen in several ways; each pair takes as long as Table 1 prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from lab.baselines.names import ORION
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from lab.interference.strangers import fit
from solvers.interference.affinity import MOST_RATIO, workload_affinity
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from solvers.planners.names import JOINT, OLTUNES

CONV, TOKEN = "conv2d", "tokengen"
# Table 1: the time of a pair in turn and at once, ms.
PRINTED: Mapping[tuple[str, str], tuple[float, float]] = {
    (CONV, CONV): (2.3, 2.35),
    (TOKEN, TOKEN): (1.6, 1.45),
    (CONV, TOKEN): (1.9, 1.3),
}
ALONE_MS = {kind: PRINTED[kind, kind][0] / 2 for kind in (CONV, TOKEN)}  # of two alike in turn, half
RATIOS = {CONV: MOST_RATIO, TOKEN: 0.0}  # of kernels that need compute to those that need memory: all of one kind
KERNELS = 200  # half of each kind
SHARED_SM_PERCENT = 50
IN_TURN, IN_ORDER = "in turn", "order of arrival"
Suit: TypeAlias = Callable[[str, str], float]  # the larger, the better they share a GPU


def pair_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns the figure of claim O4."""
    by_seed = []
    for seed in seeds:
        kernels = [CONV, TOKEN] * (KERNELS // 2)
        Random(f"pairs {seed}").shuffle(kernels)  # noqa: S311
        by_seed.append({IN_TURN: 1.0, **{name: speedup(kernels, suit) for name, suit in pairings().items()}})
    return {"pairs": measured_alike(by_seed)}


def pairings() -> Mapping[str, Suit]:
    """Returns by planner how well two kernels suit each other."""
    model = fit(_observations())

    def slowed_ms(mine: str, other: str) -> float:
        return ALONE_MS[mine] * model.slowdown(mine, SHARED_SM_PERCENT, [Neighbour(other, SHARED_SM_PERCENT)])

    def learned(first: str, second: str) -> float:
        return (ALONE_MS[first] + ALONE_MS[second]) / max(slowed_ms(first, second), slowed_ms(second, first))

    return {
        IN_ORDER: lambda first, second: 0.0,
        ORION: lambda first, second: float(first != second),
        OLTUNES: lambda first, second: workload_affinity(RATIOS[first], RATIOS[second]),
        JOINT: learned,
    }


def speedup(kernels: Sequence[str], suit: Suit) -> float:
    """Returns how many times as fast pairs are; each kernel takes the first of the partners that suit it best."""
    waiting, in_turn, at_once = list(kernels), 0.0, 0.0
    while len(waiting) > 1:
        first = waiting.pop(0)
        chosen = max(range(len(waiting)), key=lambda at: (suit(first, waiting[at]), -at))
        smaller, larger = sorted((first, waiting.pop(chosen)))  # as Table 1 is keyed
        alone_ms, shared_ms = PRINTED[smaller, larger]
        in_turn, at_once = in_turn + alone_ms, at_once + shared_ms
    return in_turn / at_once


def _observations() -> list[SlowdownObservation]:
    """Returns each kernel's time in a pair to its time alone."""
    return [
        SlowdownObservation(
            SharedRun(mine, SHARED_SM_PERCENT, (Neighbour(other, SHARED_SM_PERCENT),)), shared_ms / ALONE_MS[mine]
        )
        for (first, second), (_, shared_ms) in PRINTED.items()
        for mine, other in {(first, second), (second, first)}
    ]
